output "roles" {
  description = "The ARN of each role."
  value       = { for name, role in aws_iam_role.all : name => role.arn }
}
