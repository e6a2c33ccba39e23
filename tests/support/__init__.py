"""What tests share: instances, audits, helpers of the command line. No test imports from a test."""
