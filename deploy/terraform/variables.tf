variable "bucket" {
  description = "Name of the bucket of the archive."
  type        = string
}

variable "logs_bucket" {
  description = "Name of the bucket for what runs print (compute logs of Dagster)."
  type        = string
}

variable "kms_key_arn" {
  description = "ARN of the KMS key that encrypts the archive. Without one, S3 encrypts with keys of its own."
  type        = string
  default     = null
}

variable "lock" {
  description = "Object Lock: for how many days nobody can delete a version (COMPLIANCE), or only who has a special right (GOVERNANCE). It cannot be taken back. Without it, there is no lock."
  type        = object({ mode = string, days = number })
  default     = null
}

variable "kept_days" {
  description = "For how many days a version is kept after it was deleted or replaced."
  type        = number
  default     = 30
}

variable "oidc_provider_arn" {
  description = "ARN of the OIDC provider of an EKS cluster, whose service accounts become the roles. Without one, whoever in this account may assume the roles does so."
  type        = string
  default     = null
}

variable "namespace" {
  description = "Namespace of the service accounts."
  type        = string
  default     = "kafka-s3"
}
