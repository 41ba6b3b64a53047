package legacy

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxTaskTokens bounds the tasks whose progress a session follows: the newest are what its user looks at.
	maxTaskTokens = 256
	// maxTaskToken is the longest token that is kept for a task, in bytes. Progress need not be told.
	maxTaskToken = 256
)

// A taskToken is the progress token of a call that became a task. It stays valid for as long as the task lives, in this
// session alone: to any other one it names nothing, or a request of its own.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Progress Notifications.
type taskToken struct {
	task     string
	token    string // JSON
	progress progress
}

// keepToken remembers the token of a call, if it has one, for the task that the call has become.
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

// tokenOf returns the token for the task of a request; nil if its call gave none, or was not this session's.
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

// forget drops a token whose task is over.
func (s *Session) dropTaskToken(t *taskToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = slices.DeleteFunc(s.tokens, func(other *taskToken) bool { return other == t })
}

// withProgressToken returns the params of a request with a token in place of its own. Params that are none stay as they are.
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
