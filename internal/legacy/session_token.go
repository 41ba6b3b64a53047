package legacy

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxTaskTokens limits the tasks whose progress a session forwards. The newest are kept.
	maxTaskTokens = 256
	// maxTaskToken is the longest progress token that is kept for a task, in bytes. Progress is
	// optional.
	maxTaskToken = 256
)

// A taskToken is the progress token of a call that became a task. It is valid while the task
// exists, and in this session only: in another one it may name a different request.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Progress Notifications.
type taskToken struct {
	task     string
	token    string // JSON
	progress progress
}

// saveTaskToken keeps the progress token of a call, if it has one, for the task that the call has
// become.
func (x *Exchange) saveTaskToken(result []byte) {
	meta, _ := jsonscan.Get(x.request.Params, "_meta")
	token, ok := jsonscan.Get(meta, "progressToken")
	if !ok || len(token) > maxTaskToken {
		return
	}
	task, _ := jsonscan.Get(result, "task")
	t := &taskToken{task: text(task, "taskId"), token: string(token)}
	x.progress.mu.Lock()
	t.progress.sent, t.progress.last = x.progress.sent, x.progress.last
	x.progress.mu.Unlock()

	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens) == maxTaskTokens {
		s.tokens = slices.Delete(s.tokens, 0, 1)
	}
	s.tokens = append(s.tokens, t)
}

// taskTokenOf returns the token for the task of a request; nil if the call had none or belongs to
// another session.
func (s *Session) taskTokenOf(params []byte) *taskToken {
	id := text(params, "taskId")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		if t.task == id {
			return t
		}
	}
	return nil
}

// dropTaskToken removes the token of a task that has ended.
func (s *Session) dropTaskToken(t *taskToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = slices.DeleteFunc(s.tokens, func(other *taskToken) bool { return other == t })
}

// withProgressToken returns the params of a request with their progress token replaced. Malformed
// params are returned unchanged.
func withProgressToken(params []byte, token string) []byte {
	meta, has := jsonscan.Get(params, "_meta")
	if jsonscan.Kind(params) != '{' || has && jsonscan.Kind(meta) != '{' {
		return params
	}
	dst := append(append(make([]byte, 0, len(params)+len(token)+32), `{"_meta":{"progressToken":`...), token...)
	for key, value := range jsonscan.Members(meta) {
		if string(key) != "progressToken" {
			dst = appendMember(append(dst, ','), key, value)
		}
	}
	dst = append(dst, "},"...)
	for key, value := range jsonscan.Members(params) {
		if string(key) != "_meta" {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}
