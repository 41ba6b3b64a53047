package legacy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unique"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A record is the state of a session that its requests depend on, for other processes. Requests in
// progress, cached roots and the progress tokens of tasks are not part of it.
type record struct {
	Revision     string          `json:"revision"`
	ClientInfo   json.RawMessage `json:"clientInfo"`
	Capabilities json.RawMessage `json:"capabilities"`
	LogLevel     string          `json:"logLevel"`
	Server       [5]bool         `json:"server"` // the declared capabilities, in the order of capabilitySet
	Initialized  bool            `json:"initialized,omitempty"`
	URIs         []string        `json:"uris,omitempty"`
}

// Record returns the state of the session, for [Restore] and [Session.Merge]. It must not be called
// before [Session.InitializeResponse] has returned.
func (s *Session) Record() []byte {
	s.subMu.Lock()
	uris := s.uris
	s.subMu.Unlock()
	s.mu.Lock()
	envelope, has, initialized := s.envelope.Value(), s.server, s.initialized
	s.mu.Unlock()
	data, err := json.Marshal(&record{
		Revision:     s.rev.String(),
		ClientInfo:   json.RawMessage(envelope.clientInfo),
		Capabilities: json.RawMessage(envelope.capabilities),
		LogLevel:     envelope.logLevel,
		Server:       [5]bool{has.logging, has.subscribe, has.tools, has.prompts, has.resources},
		Initialized:  initialized,
		URIs:         uris,
	})
	if err != nil {
		panic("legacy: Record: " + err.Error()) // both objects were parsed
	}
	return data
}

// Restore returns a session with the state that [Session.Record] returned, also in another process.
// The session keeps the values of ctx but does not end with it. The error is that of a revision that
// is not accepted any more, or of too many subscribed resources.
func Restore(ctx context.Context, cfg *Config, data []byte) (*Session, error) {
	var r record
	if err := cmp.Or(json.Unmarshal(data, &r), r.check()); err != nil {
		return nil, fmt.Errorf("invalid record of a session: %w", err)
	}
	if rev, err := cfg.negotiate(r.Revision); err != nil || rev.String() != r.Revision {
		return nil, fmt.Errorf("invalid record of a session: revision %q is not accepted", r.Revision)
	}
	rev, _ := wire.ParseRevision(r.Revision)
	s := newSession(ctx, cfg, rev)
	s.envelope = unique.Make(sessionEnvelope{
		revision: rev, clientInfo: string(r.ClientInfo), capabilities: string(r.Capabilities), logLevel: r.LogLevel,
	})
	s.server = capabilitySet{r.Server[0], r.Server[1], r.Server[2], r.Server[3], r.Server[4]}
	s.hasServer, s.initialized = true, r.Initialized
	if !s.reserve(uriBytes(r.URIs)) {
		return nil, errTooManySubscribed
	}
	s.uris = r.URIs
	return s, nil
}

// Merge applies the changes between two records of the session, which another process made, and
// then adjusts the open subscription without waiting. Other changes of this process are kept. If
// before is nil, Merge adds the contents of after. If the session
// ended, the error is [ErrEnded].
func (s *Session) Merge(before, after []byte) error {
	var from, to record
	err := json.Unmarshal(after, &to)
	if before != nil {
		err = errors.Join(err, json.Unmarshal(before, &from))
	}
	if err = errors.Join(err, to.check()); err != nil {
		return fmt.Errorf("invalid record of a session: %w", err)
	}
	if err := s.mergeURIs(from.URIs, to.URIs); err != nil {
		return err
	}
	s.mu.Lock()
	s.initialized = s.initialized || to.Initialized
	if before != nil && to.LogLevel != from.LogLevel {
		s.setEnvelopeLevel(to.LogLevel)
	}
	s.mu.Unlock()
	go func() { _ = s.RefreshSubscription() }() // it waits for a handler, and logs the error
	return nil
}

// check returns an error for a record that Record does not return.
func (r *record) check() error {
	_, known := wire.LogSeverity(r.LogLevel)
	if len(r.ClientInfo) == 0 || len(r.Capabilities) == 0 || r.LogLevel != "" && !known || len(r.URIs) > maxSubscribed {
		return errors.New("a member is missing, or has an invalid value")
	}
	return nil
}

func (s *Session) mergeURIs(before, after []string) error {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	uris := slices.DeleteFunc(slices.Clone(s.uris), func(uri string) bool {
		return slices.Contains(before, uri) && !slices.Contains(after, uri)
	})
	for _, uri := range after {
		if !slices.Contains(before, uri) && !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
	}
	if s.ctx.Err() != nil { // no call releases the reservation
		return ErrEnded
	}
	if !s.reserve(uriBytes(uris) - uriBytes(s.uris)) {
		return errTooManySubscribed
	}
	s.uris = uris
	return nil
}
