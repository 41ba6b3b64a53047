package tasks

// Reseal decodes and encodes a record, and returns the statuses of both forms.
func Reseal(r Record) (again Record, extension, of2025 Status, err error) {
	j, err := openJob(r)
	if err != nil {
		return again, "", "", err
	}
	again, err = j.encode()
	return again, j.status(), j.status2025(), err
}

// Head returns the statuses of both forms from the head of a record.
func Head(r Record) (extension, of2025 Status, err error) {
	j, err := openHead(r)
	if err != nil {
		return "", "", err
	}
	return j.status(), j.status2025(), nil
}

// TaskParams parses the params of a request about a task.
func TaskParams(raw []byte) (id string, responses int, err error) {
	p, err := parseTaskParams(raw)
	if err != nil {
		return "", 0, err
	}
	return p.ID, len(p.Responses), nil
}

// Cursor2025 parses the cursor in params.
func Cursor2025(raw []byte) (Cursor, error) { return parseCursor2025(raw) }

// IsResponse reports whether raw has the shape of a response to method.
func IsResponse(method string, raw []byte) bool { return isResponse(method, raw) }

// Runs returns the number of runs that are about to start, queued or running.
func Runs(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs) + s.queue.waiting.Len()
}
