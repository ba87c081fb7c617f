"""Files and folders, local or in a bucket: found, read and written whole."""
