package audit

// A File is what a log needs of a file.
type File = logFile

// WithFiles makes a log open its segments by a function.
func WithFiles(o *Options, create func(path string) (File, error)) *Options {
	o.create = create
	return o
}

// WithQueue bounds the queue of a log.
func WithQueue(o *Options, n int) *Options {
	o.queue = n
	return o
}

// CreateOnDisk opens a segment as logs do.
func CreateOnDisk(path string) (File, error) { return createOnDisk(path) }

// ParseRecord reports whether a line is a record with its own hash, and whether it can be read.
func ParseRecord(line []byte) (isRecord, isEntry bool) {
	_, err := parseRecord(line)
	_, invalid := parseEntry("chain", line)
	return err == nil, invalid == nil
}
