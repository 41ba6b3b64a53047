package listing

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

const (
	// maxListBytes limits all pages of a list.
	maxListBytes = 64 << 20
	// maxHeldBytes limits the size of all different lists of a server, for all its callers, in
	// bytes as the server sent them. It is enough for the four largest lists of a caller. Equal
	// lists count once.
	maxHeldBytes = 4 * maxListBytes
	// LargeList is more than servers in use list. Longer lists leave smallRoom to other lists, are read by
	// at most maxLargeReads callers at a time, and are dropped with the connection of their caller.
	LargeList = 1 << 20

	smallRoom, maxLargeReads = maxListBytes / 2, 2
)

// A Memory holds the lists of all callers of a server. It is safe for concurrent use.
type Memory struct {
	catalogue.Store
	large  chan struct{} // contains an element for each list over LargeList that is being read
	server string        // the name, for errors
	drop   func()
	log    *slog.Logger

	collecting singleflight.Group[struct{}, struct{}]
	collected  time.Time // used by collecting
}

// NewMemory returns a memory without lists for a server. drop drops the lists of callers without a
// connection.
func NewMemory(server string, log *slog.Logger, drop func()) *Memory {
	return &Memory{large: make(chan struct{}, maxLargeReads), server: server, log: log, drop: drop}
}

// Keep returns the held list that equals l, so that callers share it, or holds l. It fails if l does
// not fit.
func (m *Memory) Keep(kind catalogue.Kind, l *catalogue.List) (*catalogue.List, error) {
	limit := maxHeldBytes
	if l.Bytes() > LargeList {
		limit -= smallRoom
	}
	kept := m.Store.Keep(l, limit)
	if kept != nil {
		return kept, nil
	}
	collects := m.collect()
	if kept = m.Store.Keep(l, limit); kept != nil {
		return kept, nil
	}
	e := hosterr.Errorf(hosterr.CodeLimited, m.server, "%s has returned %d bytes for this caller, which do not fit: "+
		"the different lists of all callers of the server may have %d bytes together; "+
		"end connections of other callers", kind.Method(), l.Bytes(), limit)
	e.RetryAfter = maxListPause
	if collects {
		m.log.Warn("host: list not kept", "server", m.server, "error", e)
	}
	return nil, e
}

// collect drops and collects lists, and reports whether it did. It does nothing if lists were collected
// a moment ago. If another goroutine collects them, it waits for the other goroutine.
func (m *Memory) collect() (collects bool) {
	_, _ = m.collecting.Do(context.Background(), struct{}{}, func(context.Context) (struct{}, error) {
		if collects = time.Since(m.collected) >= maxListPause; collects {
			m.drop()
			runtime.GC() // unused lists count until they are collected
			m.collected = time.Now()
		}
		return struct{}{}, nil
	})
	return collects
}
