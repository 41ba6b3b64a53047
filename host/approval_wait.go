package host

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxHeld bounds the requests that wait for approval, and maxHeldPerPrincipal those of one
	// principal: an operator cannot decide about more in time.
	maxHeld             = 1024
	maxHeldPerPrincipal = 64
	// awaitPoll is how often the state is read for an answer, which another process may have written.
	awaitPoll = time.Second
	// awaitProgress is how often the client is notified: many clients stop waiting after a minute.
	awaitProgress = 15 * time.Second
)

// heldRequests counts the requests that wait for a user. It is safe for concurrent use.
type heldRequests struct {
	mu  sync.Mutex // guards the fields below
	all int
	by  map[string]int // principals
}

// An answerSignal wakes the requests that wait when there is an answer. It is safe for concurrent use.
type answerSignal struct {
	mu       sync.Mutex    // guards the fields below
	end      bool          // no request waits any more
	answered chan struct{} // closed with the next answer; nil before a request waits for it
}

// next returns a channel that is closed with the next answer.
func (s *answerSignal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered == nil {
		s.answered = make(chan struct{})
	}
	return s.answered
}

// wake makes all requests look for an answer.
func (s *answerSignal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
}

func (s *answerSignal) wakeLocked() {
	if s.answered != nil {
		close(s.answered)
		s.answered = nil
	}
}

// stop ends the waiting of all requests, and of later ones.
func (s *answerSignal) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = true
	s.wakeLocked()
}

// ended reports whether requests wait no more.
func (s *answerSignal) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// errEnding is the reason of a request that waits when the program ends.
var errEnding = hosterr.Public{Err: errors.New(
	"the gateway is ending, and nothing was approved: send the request again")}

func (h *heldRequests) add(principal string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all >= maxHeld || h.by[principal] >= maxHeldPerPrincipal {
		return false
	}
	if h.by == nil {
		h.by = map[string]int{}
	}
	h.all++
	h.by[principal]++
	return true
}

func (h *heldRequests) remove(principal string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all--
	if h.by[principal]--; h.by[principal] == 0 {
		delete(h.by, principal)
	}
}

// await waits until the operator or the webhook has approved the request.
func (p *approving) await(ctx context.Context, req *mcp.Request, channels []policy.Channel) error {
	if !p.held.add(p.principal) {
		return p.fail(hosterr.CodeLimited, hosterr.Public{Err: errors.New("too many requests wait for approval")})
	}
	defer p.held.remove(p.principal)
	defer p.waits(p.action.Server)()
	now := time.Now().UTC()
	client := req.ClientInfo()
	entry := &approval.Record{Pending: approval.Pending{ID: strings.ToLower(rand.Text()[:10]), Created: now,
		Expires: now.Add(approvalTime), Principal: principalText(p.caller),
		Client: strings.TrimSpace(client.Name + " " + client.Version),
		Server: p.action.Server, Method: p.action.Method, Target: p.action.Target, Arguments: p.action.Arguments,
		Meta: p.meta, Definition: p.action.Definition,
		Rule: p.decision.Rule, Reason: p.decision.Reason, Answers: p.choices()}}
	if err := p.state.CompareAndSet(ctx, approval.KindPending, entry.ID, 0, mustJSON(entry)); err != nil {
		return p.fail(hosterr.CodeApprovalNeeded, err)
	}
	kept := false // the entry, for whom decides about the request later
	defer func() {
		if !kept {
			p.forgetPending(entry.ID)
		}
	}()
	p.changed(Event{Server: p.action.Server, Pending: entry.ID})
	ctx, cancel := context.WithTimeout(ctx, approvalTime)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	answer, err := p.answer(ctx, req, entry, channels)
	if errors.Is(err, errPolicyChanged) {
		kept = true
		p.voidPending(entry.ID)
	}
	p.changed(Event{Server: p.action.Server, Pending: entry.ID, Decided: true, Answer: answer})
	if err == nil && p.decision.Channel == policy.ChannelConsole {
		p.recordAnswer(entry.ID, answer)
	}
	switch {
	case err != nil:
		return err
	case answer == approval.Deny:
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New("the operator has not approved the request")})
	}
	if err := p.checkAgain(ctx, req); err != nil {
		return err
	}
	if err := p.grant(ctx, answer); err != nil {
		return p.fail(hosterr.CodeApprovalNeeded, err)
	}
	p.nonce = rand.Text()
	return nil
}

// recordAnswer records what the operator has answered, with the id of the call.
func (p *approving) recordAnswer(id string, answer approval.Answer) {
	action := "approve"
	if answer == approval.Deny {
		action = "deny"
	}
	detail := mustJSON(map[string]string{"action": action, "id": id, "answer": string(answer),
		"principal": principalText(p.caller)})
	p.record(&event.Record{Event: event.Admin, Call: p.call, Start: time.Now(), Method: p.action.Method,
		Rule: p.decision.Rule, Channel: string(policy.ChannelConsole), Approver: p.decision.Approver, Detail: detail,
		Action: policy.Action{Server: p.action.Server, Target: p.action.Target}})
}

// forgetPending removes the entry of a request that does not wait any more.
func (p *approver) forgetPending(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 2*time.Second) // it also expires
	defer cancel()
	if _, version, err := p.state.Get(ctx, approval.KindPending, id); err == nil && version != 0 {
		_ = p.state.CompareAndSet(ctx, approval.KindPending, id, version, nil)
	}
}

// voidPending keeps the entry of a request that waits no more since the policy has changed, until it expires:
// the operator learns why the request cannot be approved.
func (p *approver) voidPending(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 2*time.Second)
	defer cancel()
	value, version, err := p.state.Get(ctx, approval.KindPending, id)
	var entry approval.Record
	if err != nil || version == 0 || json.Unmarshal(value, &entry) != nil {
		return
	}
	entry.Void = errPolicyChanged.Error()
	_ = p.state.CompareAndSet(ctx, approval.KindPending, id, version, mustJSON(entry)) // it also expires
}

// errPolicyChanged is the reason of a request that waits when the policy changes.
var errPolicyChanged = errors.New("the policy has changed")

// errNotInTime is the reason of a request that was not approved within approvalTime.
var errNotInTime = hosterr.Public{Err: fmt.Errorf("the request was not approved within %v", approvalTime)}

type webhookAnswer struct {
	answer approval.Answer
	err    error
}

// answer waits for the answer to a request and returns it. It sets the channel and the approver of
// the decision.
func (p *approving) answer(
	ctx context.Context, req *mcp.Request, entry *approval.Record, channels []policy.Channel,
) (approval.Answer, error) {
	answered := make(chan webhookAnswer, 1)
	from := p.asking.Load()
	if webhook := from.webhook; webhook != nil && slices.Contains(channels, policy.ChannelWebhook) {
		pending := entry.Pending
		p.run(func() { // ends with ctx
			answer, err := webhook(ctx, &pending)
			answered <- webhookAnswer{answer, err}
		})
	}
	epoch := p.epoch()
	poll, progress := time.NewTicker(awaitPoll), time.NewTicker(awaitProgress)
	defer poll.Stop()
	defer progress.Stop()
	for n := 1; ; {
		next := p.answers.next()
		if p.answers.ended() {
			return "", p.fail(hosterr.CodeUnavailable, errEnding)
		}
		if p.epoch() != epoch {
			return "", p.fail(hosterr.CodeDenied, hosterr.Public{Err: fmt.Errorf(
				"%w since the request began: start it again", errPolicyChanged)})
		}
		if answer, err := p.stored(ctx, entry.ID); answer != "" || err != nil {
			return answer, err
		}
		select {
		case <-poll.C:
		case <-next:
		case got := <-answered:
			answered = nil
			switch {
			case got.err != nil && !slices.Contains(channels, policy.ChannelConsole):
				return "", p.fail(hosterr.CodeApprovalNeeded, fmt.Errorf("ask the webhook: %w", got.err))
			case got.err != nil:
				p.logger.WarnContext(ctx, "host: webhook failed: the request waits for the operator",
					"error", got.err)
			case got.answer != "":
				p.decision.Channel, p.decision.Approver = policy.ChannelWebhook, approval.ApproverName(from.webhookName)
				if !slices.Contains(entry.Answers, got.answer) {
					return approval.Deny, nil
				}
				return got.answer, nil
			}
		case <-progress.C:
			notifyProgress(ctx, req, n, "waiting for approval")
			n++
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", p.fail(hosterr.CodeApprovalExpired, errNotInTime)
			}
			return "", context.Cause(ctx)
		}
	}
}

// stored returns the answer in the state, or "" if the request is not answered yet. With an answer,
// it sets the channel and the approver of the decision.
func (p *approving) stored(ctx context.Context, id string) (approval.Answer, error) {
	value, version, err := p.state.Get(ctx, approval.KindPending, id)
	var entry approval.Record
	switch {
	case err != nil:
		return "", p.fail(hosterr.CodeApprovalNeeded, err)
	case version == 0 || json.Unmarshal(value, &entry) != nil:
		entry = approval.Record{Answer: approval.Deny}
	}
	if entry.Answer != "" {
		p.decision.Channel, p.decision.Approver = policy.ChannelConsole, entry.Approver
	}
	return entry.Answer, nil
}

// notifyProgress sends progress of a request that waits. The server's own progress follows.
func notifyProgress(ctx context.Context, req *mcp.Request, n int, message string) {
	token, ok := req.Meta("progressToken")
	if !ok || req.Notify == nil {
		return
	}
	b := append(append([]byte(`{"progressToken":`), token...), fmt.Sprintf(`,"progress":%g`, float64(n)/1000)...)
	b = append(jsonscan.AppendQuote(append(b, `,"message":`...), message), '}')
	_ = req.Notify(ctx, "notifications/progress", b) // without it, the client may stop waiting
}

// checkAgain checks, after a wait, that the policy and the definition are unchanged since the request was
// approved.
func (p *approving) checkAgain(ctx context.Context, req *mcp.Request) error {
	binding, err := p.bind(req)
	same := err == nil && binding == p.binding
	if same {
		same, err = p.stillApplies(ctx, req)
	}
	if !same {
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy or the definition has changed since the request began: start it again")})
	}
	return err
}
