package listing

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

// Reviewer returns the reviewer of the last connection, before it the reviewer of the options. It may be
// nil.
func (l *Lists) Reviewer() Reviewer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reviewer
}

// Reviewed returns a list and its reviewer.
func (l *Lists) Reviewed(kind catalogue.Kind) (*catalogue.List, Reviewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[kind].list, l.lists[kind].reviewer
}

// ReviewAgain reviews the lists and the description of the server again.
func (l *Lists) ReviewAgain(ctx context.Context) {
	l.reviewing.Lock()
	defer l.reviewing.Unlock()
	for k := range catalogue.Kinds {
		kind := catalogue.Kind(k)
		list, reviewer := l.Reviewed(kind)
		if reviewer == nil || list == nil {
			continue
		}
		list = reviewer.ReviewList(ctx, kind, list)
		l.mu.Lock()
		l.lists[k].list = list
		l.mu.Unlock()
	}
	l.mu.Lock()
	reviewer, about := l.reviewer, l.about
	l.mu.Unlock()
	if reviewer != nil {
		approved := reviewer.ReviewAbout(ctx, about)
		l.mu.Lock()
		l.approved = approved
		l.mu.Unlock()
	}
	l.Notify()
}

// Restore restores the capabilities and lists of an earlier connection, so that the server can be
// listed before it is started. Only the first call restores them.
func (l *Lists) Restore(ctx context.Context) {
	if l.Reviewer() == nil {
		return
	}
	l.restoring.Do(func() {
		reviewer := l.Reviewer()
		if reviewer == nil {
			return
		}
		found, ok := reviewer.Restore(ctx, func(kind catalogue.Kind, list *catalogue.List) *catalogue.List {
			list, _ = l.Memory.Keep(kind, list)
			return list
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		if !ok || l.capabilities != nil || l.reviewer != reviewer { // connected or reloaded meanwhile
			return
		}
		l.capabilities, l.revision, l.approved = found.Capabilities, found.Revision, found.Approved
		for k, list := range found.Lists {
			l.lists[k].list, l.lists[k].reviewer, l.lists[k].restored = list, reviewer, true
		}
	})
}

// SetReviewer replaces the reviewer of lists without a connection. Restored lists are read again.
func (l *Lists) SetReviewer(reviewer Reviewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reviewer == reviewer {
		return
	}
	l.reviewer, l.about, l.approved = reviewer, nil, Approved{}
	for k := range l.lists {
		l.lists[k].restored = false
	}
}
