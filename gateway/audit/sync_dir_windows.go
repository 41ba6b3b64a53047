package audit

// syncDir does nothing: the system writes names with the files.
func syncDir(string) error { return nil }
