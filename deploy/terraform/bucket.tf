resource "aws_s3_bucket" "archive" {
  bucket              = var.bucket
  object_lock_enabled = var.lock != null

  lifecycle {
    prevent_destroy = true
  }
}

# A file of the index that was lost is put back from its versions (docs/errors.md).
resource "aws_s3_bucket_versioning" "archive" {
  bucket = aws_s3_bucket.archive.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_object_lock_configuration" "archive" {
  count      = var.lock == null ? 0 : 1
  depends_on = [aws_s3_bucket_versioning.archive]
  bucket     = aws_s3_bucket.archive.id

  rule {
    default_retention {
      mode = var.lock.mode
      days = var.lock.days
    }
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "archive" {
  bucket = aws_s3_bucket.archive.id

  rule {
    bucket_key_enabled = var.kms_key_arn != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

# Nothing of the archive expires, and nothing becomes cold by itself: the index must be readable at once.
resource "aws_s3_bucket_lifecycle_configuration" "archive" {
  depends_on = [aws_s3_bucket_versioning.archive]
  bucket     = aws_s3_bucket.archive.id

  rule {
    id     = "unfinished-uploads"
    status = "Enabled"
    filter {}

    # of killed runs, which the vacuum aborts sooner
    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  rule {
    id     = "old-versions"
    status = "Enabled"
    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.kept_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }
}

resource "aws_s3_bucket" "logs" {
  bucket = var.logs_bucket
}

resource "aws_s3_bucket_ownership_controls" "all" {
  for_each = local.buckets
  bucket   = each.value.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "all" {
  for_each                = local.buckets
  bucket                  = each.value.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_policy" "all" {
  for_each = local.buckets
  bucket   = each.value.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [each.value.arn, "${each.value.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}

locals {
  buckets = { archive = aws_s3_bucket.archive, logs = aws_s3_bucket.logs }
}
