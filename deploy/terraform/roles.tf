locals {
  # What each role may do: files of policies/, which docs/iam.md explains and a test compares with real runs.
  roles = {
    writer = ["archive", "logs"]
    reader = ["restore", "rehearse", "verify", "thaw", "logs"]
    eraser = ["vacuum", "upkeep"]
    # Dagster's webserver and daemon
    logs = ["logs"]
  }

  # Who has each role in Kubernetes: deploy/kubernetes.
  accounts = {
    writer = "kafka-s3"
    reader = "kafka-s3-reader"
    eraser = "kafka-s3-eraser"
    logs   = "kafka-s3-dagster"
  }

  policies = toset(flatten(values(local.roles)))
  granted  = merge([for role, names in local.roles : { for name in names : "${role}-${name}" => { role = role, policy = name } }]...)

  trust_account = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { AWS = data.aws_caller_identity.current.account_id }
    }]
  })
  issuer = var.oidc_provider_arn == null ? "" : split(":oidc-provider/", var.oidc_provider_arn)[1]
}

data "aws_caller_identity" "current" {}

resource "aws_iam_policy" "all" {
  for_each = local.policies
  name     = "kafka-s3-${each.key}"
  policy = replace(replace(file("${path.module}/policies/${each.key}.json"),
    "arn:aws:s3:::BUCKET", aws_s3_bucket.archive.arn),
  "arn:aws:s3:::LOGS", aws_s3_bucket.logs.arn)
}

resource "aws_iam_role" "all" {
  for_each = local.roles
  name     = "kafka-s3-${each.key}"

  assume_role_policy = var.oidc_provider_arn == null ? local.trust_account : jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = var.oidc_provider_arn }
      Condition = {
        StringEquals = {
          "${local.issuer}:aud" = "sts.amazonaws.com"
          "${local.issuer}:sub" = "system:serviceaccount:${var.namespace}:${local.accounts[each.key]}"
        }
      }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "all" {
  for_each   = local.granted
  role       = aws_iam_role.all[each.value.role].name
  policy_arn = aws_iam_policy.all[each.value.policy].arn
}

resource "aws_iam_role_policy" "key" {
  for_each = { for role, names in local.roles : role => names if var.kms_key_arn != null && role != "logs" }
  name     = "kms"
  role     = aws_iam_role.all[each.key].name

  # All three write: the reader writes plans and reports of restores.
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["kms:GenerateDataKey", "kms:Decrypt"], Resource = var.kms_key_arn }]
  })
}
