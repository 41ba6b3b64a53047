package tasks

// Reseal reads a record and gives it as it would be written again, with the statuses of both forms.
func Reseal(r Record) (again Record, extension, of2025 Status, err error) {
	j, err := openJob(r)
	if err != nil {
		return again, "", "", err
	}
	again, err = j.seal()
	return again, j.status(), j.status2025(), err
}

// Glance returns the statuses of both forms from the head of a record.
func Glance(r Record) (extension, of2025 Status, err error) {
	j, err := openHead(r)
	if err != nil {
		return "", "", err
	}
	return j.status(), j.status2025(), nil
}

// TaskParams reads the params of a request about a task.
func TaskParams(raw []byte) (id string, responses int, err error) {
	p, err := parseTaskParams(raw)
	if err != nil {
		return "", 0, err
	}
	return p.ID, len(p.Responses), nil
}

// Cursor2025 reads the cursor of params.
func Cursor2025(raw []byte) (Cursor, error) { return parseCursor2025(raw) }

// AnswerFits reports whether an answer has the form of one.
func AnswerFits(method string, raw []byte) bool { return fits(method, raw) }

// Due returns the number of runs that are due, wait for their turn or are under way.
func Due(m *Server) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.runs) + m.turns.next.Len() // nobody waits without one
}
