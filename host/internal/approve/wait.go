package approve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// awaitPoll is the interval between reads of the state: another process may store an answer.
const awaitPoll = time.Second

// errEnding refuses a waiting request when the program ends.
var errEnding = hosterr.Public{Err: errors.New(
	"the gateway is ending, and nothing was approved: send the request again")}

// await waits until the operator or the webhook has approved the request.
func (p *approving) await(ctx context.Context, req *mcp.Request, channels []policy.Channel) error {
	release, ok := p.Hold(p.c.View.Principal())
	if !ok {
		return p.fail(hosterr.CodeLimited, hosterr.Public{Err: errors.New("too many requests wait for approval")})
	}
	defer release()
	defer p.Waits(p.c.Action.Server)()
	now := time.Now().UTC()
	client := req.ClientInfo()
	entry := &approval.Record{Pending: approval.Pending{ID: strings.ToLower(rand.Text()[:10]), Created: now,
		Expires: now.Add(approvalTime), Principal: principalText(p.c.Action.Caller),
		Client: strings.TrimSpace(client.Name + " " + client.Version),
		Server: p.c.Action.Server, Method: p.c.Action.Method, Target: p.c.Action.Target,
		Arguments: p.c.Action.Arguments,
		Meta:      p.meta, Definition: p.c.Action.Definition,
		Rule: p.c.Decision.Rule, Reason: p.c.Decision.Reason, Answers: p.choices()}}
	if err := p.State.CompareAndSet(ctx, approval.KindPending, entry.ID, 0, mustJSON(entry)); err != nil {
		return p.fail(hosterr.CodeApprovalNeeded, err)
	}
	kept := false // whether the entry remains for operators who answer later
	defer func() {
		if !kept {
			p.forgetPending(entry.ID)
		}
	}()
	p.Changed(Change{Server: p.c.Action.Server, Pending: entry.ID})
	ctx, cancel := context.WithTimeout(ctx, approvalTime)
	defer cancel()
	stop := context.AfterFunc(p.Context, cancel)
	defer stop()
	answer, err := p.answer(ctx, req, entry, channels)
	if errors.Is(err, errPolicyChanged) {
		kept = true
		p.voidPending(entry.ID)
	}
	p.Changed(Change{Server: p.c.Action.Server, Pending: entry.ID, Decided: true, Answer: answer})
	if err == nil && p.c.Decision.Channel == policy.ChannelConsole {
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
	p.c.Approval.Nonce = rand.Text()
	return nil
}

// recordAnswer records the answer of the operator, with the ID of the call.
func (p *approving) recordAnswer(id string, answer approval.Answer) {
	action := "approve"
	if answer == approval.Deny {
		action = "deny"
	}
	detail := mustJSON(map[string]string{"action": action, "id": id, "answer": string(answer),
		"principal": principalText(p.c.Action.Caller)})
	p.Record(&event.Record{Event: event.Admin, Call: p.c.ID(), Start: time.Now(), Method: p.c.Action.Method,
		Rule: p.c.Decision.Rule, Channel: string(policy.ChannelConsole), Approver: p.c.Decision.Approver,
		Detail: detail, Action: policy.Action{Server: p.c.Action.Server, Target: p.c.Action.Target}})
}

// forgetPending removes the entry of a request that no longer waits.
func (a *Approver) forgetPending(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Context), 2*time.Second) // it also expires
	defer cancel()
	if _, version, err := a.State.Get(ctx, approval.KindPending, id); err == nil && version != 0 {
		_ = a.State.CompareAndSet(ctx, approval.KindPending, id, version, nil)
	}
}

// voidPending marks the entry of a request whose policy changed, and keeps it until it expires, so that
// the operator learns why the request can no longer be approved.
func (a *Approver) voidPending(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Context), 2*time.Second)
	defer cancel()
	value, version, err := a.State.Get(ctx, approval.KindPending, id)
	var entry approval.Record
	if err != nil || version == 0 || json.Unmarshal(value, &entry) != nil {
		return
	}
	entry.Void = errPolicyChanged.Error()
	_ = a.State.CompareAndSet(ctx, approval.KindPending, id, version, mustJSON(entry)) // it also expires
}

// errPolicyChanged refuses a waiting request when the policy changes.
var errPolicyChanged = errors.New("the policy has changed")

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
	from := p.channels.Load()
	if webhook := from.Webhook; webhook != nil && slices.Contains(channels, policy.ChannelWebhook) {
		pending := entry.Pending
		p.Run(func() { // ends with ctx
			answer, err := webhook(ctx, &pending)
			answered <- webhookAnswer{answer, err}
		})
	}
	epoch := p.Epoch()
	poll, progress := time.NewTicker(awaitPoll), time.NewTicker(round.ProgressInterval)
	defer poll.Stop()
	defer progress.Stop()
	for n := 1; ; {
		next, ended := p.waiting.next()
		if ended {
			return "", p.fail(hosterr.CodeUnavailable, errEnding)
		}
		if p.Epoch() != epoch {
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
				p.Logger.WarnContext(ctx, "host: webhook failed: the request waits for the operator",
					"error", got.err)
			case got.answer != "":
				d := p.c.Decision
				d.Channel, d.Approver = policy.ChannelWebhook, approval.ApproverName(from.WebhookName)
				if !slices.Contains(entry.Answers, got.answer) {
					return approval.Deny, nil
				}
				return got.answer, nil
			}
		case <-progress.C:
			round.NotifyProgress(ctx, req, n, "waiting for approval")
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
	value, version, err := p.State.Get(ctx, approval.KindPending, id)
	var entry approval.Record
	switch {
	case err != nil:
		return "", p.fail(hosterr.CodeApprovalNeeded, err)
	case version == 0 || json.Unmarshal(value, &entry) != nil:
		entry = approval.Record{Answer: approval.Deny}
	}
	if entry.Answer != "" {
		p.c.Decision.Channel, p.c.Decision.Approver = policy.ChannelConsole, entry.Approver
	}
	return entry.Answer, nil
}

// checkAgain checks, after a wait, that the policy, the server and the definition are unchanged since the
// request was approved.
func (p *approving) checkAgain(ctx context.Context, req *mcp.Request) error {
	binding, err := p.bind(req)
	same := err == nil && binding == p.c.Approval.Binding &&
		p.c.Pool.Entry().Program() == p.c.Server.Program()
	if same {
		same, err = p.Again(ctx, p.c, req)
	}
	if !same {
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy, the server or the definition has changed since the request began: start it again")})
	}
	return err
}
