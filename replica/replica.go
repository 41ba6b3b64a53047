// Package replica defines the state that the processes of a server share, so that every process can
// serve every request without sticky sessions: the records of sessions of revisions before
// 2026-07-28, small messages between processes, and leases. Package stores/redis implements them in Redis. [Memory]
// serves a single process.
package replica

import (
	"context"
	"errors"
	"time"
)

// Errors of sessions. Test for them with [errors.Is].
var (
	// ErrNoSession means that the store contains no session with the key: the session ended, expired,
	// or never existed. A store that cannot be reached must return another error.
	ErrNoSession = errors.New("replica: no such session")
	// ErrConflict means that another process changed the session: load the session again.
	ErrConflict = errors.New("replica: the session was changed by another process")
	// ErrElsewhere means that a process no longer serves a session, which may continue at other
	// processes.
	ErrElsewhere = errors.New("replica: the session may continue at other processes")
)

// A Session is the record of a session that was opened with initialize.
type Session struct {
	// Version is 1 after Create, and increases with each Update.
	Version uint64
	// Principal is a digest of the principal that opened the session; empty for anonymous callers.
	Principal string
	// Listener names the process that holds the stream for messages that belong to no request; empty
	// if no process does.
	Listener string
	// Data is the state of the session in an encoding of the server.
	Data []byte
}

// A SessionStore stores the records of sessions. The keys of sessions are digests, not the secret
// ids that clients send. A record expires when it was neither changed nor kept for the time idle.
// The methods are safe for concurrent use and must not retain Data.
type SessionStore interface {
	// Create stores a new session with version 1. It returns [ErrConflict] if the key exists.
	Create(ctx context.Context, key string, s Session, idle time.Duration) error
	// Load returns a session, or [ErrNoSession].
	Load(ctx context.Context, key string) (Session, error)
	// Update replaces a session whose stored version is s.Version, and increases the version by 1. It
	// returns [ErrConflict] for another version, and [ErrNoSession].
	Update(ctx context.Context, key string, s Session, idle time.Duration) error
	// Keep extends the life of an unchanged session, or returns [ErrNoSession].
	Keep(ctx context.Context, key string, idle time.Duration) error
	// Delete deletes a session. Deleting an unknown session is no error.
	Delete(ctx context.Context, key string) error
	// Watch calls changed after a session that this process loaded, created or updated was changed,
	// deleted or expired, also by this process. An empty key means that changes may have been lost:
	// load every session again. changed must not wait. The calls end soon after stop returns.
	Watch(changed func(key string)) (stop func())
}

// A Bus carries small messages between processes, each at most once. Its methods are safe for
// concurrent use.
type Bus interface {
	// Publish sends a message to all subscribers of a topic, including subscribers in this process, and
	// returns their number. A bus may count the subscribers in a process as a single subscriber, and may
	// refuse a payload of more than 1 MiB.
	Publish(ctx context.Context, topic string, payload []byte) (receivers int, err error)
	// Subscribe calls receive with each message of a topic, in order. A nil payload means that messages
	// may have been lost. receive must not wait and must not retain payload. Messages published after
	// Subscribe returns are received. The calls end soon after stop returns.
	Subscribe(ctx context.Context, topic string, receive func(payload []byte)) (stop func(), err error)
}
