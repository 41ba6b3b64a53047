package audit

// syncDir returns at once: the system writes names together with the files.
func syncDir(string) error { return nil }
