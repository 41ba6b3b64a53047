package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// Kinds of entries in a [state.Store].
const (
	KindPending = "approval" // a [Record], under the ID of its request
	KindGrant   = "grant"    // a [Grant], under a digest of the requests that it approves
)

// An Approvals gives access to the requests that wait for an approval by policy.ChannelConsole or
// policy.ChannelWebhook, and to the grants, of all hosts that share a state.Store, in any process. It
// is safe for concurrent use.
type Approvals struct {
	state    state.Store
	answered func()
}

// New returns the Approvals of a store. The function answered is called after each answer; it may be
// nil. The host of this process passes a function that ends the wait at once.
func New(s state.Store, answered func()) *Approvals { return &Approvals{s, answered} }

// ErrNotPending reports that no request with the ID waits for approval: it was decided, was canceled,
// or expired.
var ErrNotPending = errors.New("host: no request with this id waits for approval")

// ErrNoGrant reports that no grant contains the ID.
var ErrNoGrant = errors.New("host: no grant has this id")

// Pending returns the requests that wait, the oldest first.
func (a *Approvals) Pending(ctx context.Context) (all []Pending, err error) {
	now := time.Now()
	for e, err := range a.state.List(ctx, KindPending) {
		if err != nil {
			return nil, fmt.Errorf("list requests for approval: %w", err)
		}
		var p Record
		switch {
		case json.Unmarshal(e.Value, &p) != nil, now.After(p.Expires): // of a process that was killed
			_ = a.state.CompareAndSet(ctx, KindPending, e.Key, e.Version, nil) // else the next time
		case p.Answer == "" && p.Void == "":
			all = append(all, p.Pending)
		}
	}
	slices.SortStableFunc(all, func(x, y Pending) int { return x.Created.Compare(y.Created) })
	return all, nil
}

// Decide answers a request that waits. The host that holds the request sends or refuses it within about
// a second, and at once if it returned these Approvals or if the store is a [*state.Shared] here and
// there. The approver identifies who answers in
// records and grants, such as a user of the operating system; Decide truncates it to 256 bytes. The
// error is [ErrNotPending] if the request no longer waits.
func (a *Approvals) Decide(ctx context.Context, id string, answer Answer, approver string) error {
	for {
		value, version, err := a.state.Get(ctx, KindPending, cmp.Or(id, "-"))
		if err != nil {
			return fmt.Errorf("decide about %q: %w", id, err)
		}
		var p Record
		switch {
		case version != 0 && json.Unmarshal(value, &p) == nil && p.Void != "":
			return fmt.Errorf("decide about %.64q: %w: void: %s", id, ErrNotPending, p.Void)
		case version == 0 || json.Unmarshal(value, &p) != nil || p.Answer != "" || time.Now().After(p.Expires):
			return fmt.Errorf("decide about %.64q: %w", id, ErrNotPending)
		case !slices.Contains(p.Answers, answer):
			why := ""
			if answer == Session {
				why = ": this client has no session"
			}
			return fmt.Errorf("decide about %q: invalid answer %.64q: must be one of %s%s", id, answer,
				answersText(p.Answers), why)
		}
		p.Answer, p.Approver = answer, ApproverName(approver)
		if value, err = json.Marshal(p); err != nil {
			return fmt.Errorf("decide about %q: %w", id, err)
		}
		err = a.state.CompareAndSet(ctx, KindPending, id, version, value)
		if err == nil && a.answered != nil {
			a.answered()
		}
		if err == nil {
			state.Announce(ctx, a.state, KindPending)
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

// answersText returns answers for an error.
func answersText(answers []Answer) string {
	var texts []string
	for _, a := range answers {
		texts = append(texts, string(a))
	}
	return strings.Join(texts, ", ")
}

// Grants returns the grants, the oldest first.
func (a *Approvals) Grants(ctx context.Context) (all []Grant, err error) {
	now := time.Now()
	for e, err := range a.state.List(ctx, KindGrant) {
		if err != nil {
			return nil, fmt.Errorf("list grants: %w", err)
		}
		var g Grant
		if json.Unmarshal(e.Value, &g) != nil || !g.Expires.IsZero() && now.After(g.Expires) {
			_ = a.state.CompareAndSet(ctx, KindGrant, e.Key, e.Version, nil) // else the next time
			continue
		}
		all = append(all, g)
	}
	slices.SortStableFunc(all, func(x, y Grant) int { return x.Created.Compare(y.Created) })
	return all, nil
}

// Revoke removes a grant. The next request for the item asks again. The error is [ErrNoGrant] if no
// grant contains the ID.
func (a *Approvals) Revoke(ctx context.Context, id string) error {
	found, err := a.RevokeFunc(ctx, func(g *Grant) bool { return g.ID == id })
	if err == nil && found == 0 {
		err = fmt.Errorf("revoke %.64q: %w", id, ErrNoGrant)
	}
	return err
}

// RevokeFunc removes the grants that match, and returns how many it found.
func (a *Approvals) RevokeFunc(ctx context.Context, match func(*Grant) bool) (found int, err error) {
	for e, err := range a.state.List(ctx, KindGrant) {
		if err != nil {
			return found, fmt.Errorf("list grants: %w", err)
		}
		var g Grant
		if json.Unmarshal(e.Value, &g) != nil || !match(&g) {
			continue
		}
		err := a.state.CompareAndSet(ctx, KindGrant, e.Key, e.Version, nil)
		if err != nil && !errors.Is(err, state.ErrConflict) {
			return found, fmt.Errorf("revoke a grant: %w", err)
		}
		found++
	}
	return found, nil
}
