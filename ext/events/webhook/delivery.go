package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Categories of failures: the values of [Status].LastError and of data.reason of an error with
// [events.CodeCallbackEndpoint]. Nothing else about a response of an endpoint reaches the client.
//
// Spec: SEP-3415, Webhook delivery status.
const (
	CategoryRefused   = "connection_refused" // also: the host is unknown, or its address is not allowed
	CategoryTimeout   = "timeout"
	CategoryTLS       = "tls_error"
	CategoryHTTP4xx   = "http_4xx" // also a redirect, which is not followed
	CategoryHTTP5xx   = "http_5xx"
	CategoryChallenge = "challenge_failed"
)

const (
	// MaxBody is the largest body of a delivery, in bytes. A larger event is not sent.
	//
	// Spec: SEP-3415, Webhook security, Delivery profile.
	MaxBody = 256 << 10
	// maxReply limits the bytes of a response that are read. The answer to a challenge takes 50.
	maxReply = 4 << 10
)

// retryDelays are the times between the attempts of a delivery. With their jitter, which only
// lengthens them, the last attempt takes place between 11 and 15 minutes after the first attempt.
var retryDelays = [...]time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 5 * time.Minute,
	5 * time.Minute}

// withJitter lengthens a time by up to a fifth, so that receivers are not called at the same time.
func withJitter(d time.Duration) time.Duration { return d + mathrand.N(d/5+1) }

// sleep returns after a time, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// A result is how a delivery ended.
type result int

const (
	accepted result = iota
	refused         // by the endpoint, which does not want it again
	givenUp         // after all attempts, or because it cannot be sent
)

// sendEvent delivers an event.
func (d *subscription) sendEvent(e *events.Delivered, cursor string) (result, error) {
	var body []byte
	var err error
	d.sender.pool.do(func() { body, err = e.Encode(cursor) })
	if err != nil || !isID(e.ID) || len(body) > MaxBody {
		d.sender.o.Logger.Warn("webhook: an event cannot be sent: its eventId must be 1 to 256 printable ASCII "+
			"characters, and its body at most 256 KiB", "id", d.id, "event", e.Name, "bytes", len(body),
			"error", err)
		return givenUp, nil
	}
	return d.deliver(d.ctx, e.ID, body)
}

// sendGap tells the endpoint that events were skipped, if there is a gap that it does not know.
func (d *subscription) sendGap() error {
	d.mu.Lock()
	isGap, cursor := d.Gap, d.Cursor
	d.mu.Unlock()
	if !isGap {
		return nil
	}
	body, err := jsonv2.Marshal(envelope{Type: TypeGap, Cursor: &cursor})
	if err != nil {
		return err
	}
	result, err := d.deliver(d.ctx, messageID(TypeGap), body)
	if err == nil && result != givenUp {
		d.mu.Lock()
		d.Gap = false
		d.changed()
		d.mu.Unlock()
	}
	return err
}

// terminate removes the subscription and tells the endpoint why.
func (d *subscription) terminate(reason *mcp.Error) {
	if ended, _ := d.sender.remove(d.sender.ctx, d, always); !ended {
		return
	}
	body, err := jsonv2.Marshal(envelope{Type: TypeTerminated, Error: reason})
	if err == nil {
		_, err = d.deliver(d.sender.ctx, messageID(TypeTerminated), body)
	}
	if err != nil {
		d.sender.o.Logger.Warn("webhook: the end of a subscription was not delivered", "id", d.id, "error", err)
	}
}

// An envelope is a message that is not an event.
//
// Spec: SEP-3415, Non-event webhook bodies.
type envelope struct {
	Type      string     `json:"type"`
	Challenge string     `json:"challenge,omitzero"`
	Cursor    *string    `json:"cursor,omitzero"`
	Error     *mcp.Error `json:"error,omitzero"`
}

// Types of envelopes.
const (
	TypeGap          = "gap"          // events were skipped
	TypeTerminated   = "terminated"   // the subscription ended
	typeVerification = "verification" // the endpoint must answer a challenge
)

func messageID(kind string) string { return "msg_" + kind + "_" + rand.Text() }

// deliver sends a message until the endpoint accepts or refuses it, or all attempts failed. The
// error is for a context that ended or a subscription that must be removed.
func (d *subscription) deliver(ctx context.Context, id string, body []byte) (result, error) {
	for {
		if err := d.await(ctx, id); err != nil {
			return givenUp, err
		}
		var status int
		var category string
		d.sender.pool.do(func() {
			status, _, category = d.sender.exchange(ctx, d.URL, d.id, id, body, d.secrets(time.Now()))
		})
		if err := context.Cause(ctx); err != nil {
			return givenUp, err
		}
		switch {
		case category == "":
			d.succeeded(time.Now())
			return accepted, nil
		case status == http.StatusGone || status == http.StatusRequestEntityTooLarge:
			d.succeeded(d.LastDelivery)
			return refused, nil
		case d.failed(ctx, id, category):
			return givenUp, nil
		}
	}
}

// await waits until the next attempt of a message may be made. After a wait it checks the permission.
func (d *subscription) await(ctx context.Context, id string) error {
	for waited := false; ; waited = true {
		d.mu.Lock()
		wait := time.Duration(0)
		if d.Pending.ID == id {
			wait = time.Until(d.Pending.Next)
		}
		suspended := d.Suspended && !d.ended
		if suspended {
			wait = math.MaxInt64
		}
		if suspended && d.Expires.IsZero() {
			wait = max(time.Until(d.FailedSince.Add(dropAfter)), 1)
		}
		category := d.LastError
		d.mu.Unlock()
		if wait <= 0 && waited {
			return d.permit(ctx)
		}
		if wait <= 0 {
			return context.Cause(ctx)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-timer.C:
			if suspended {
				return dataError(events.CodeCallbackEndpoint, "the endpoint failed for too long",
					`{"reason":"`+category+`"}`)
			}
		}
		timer.Stop()
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// permit returns the error that ends a subscription without permission. While the permission cannot
// be determined, it waits.
//
// Spec: SEP-3415, Authorization.
func (d *subscription) permit(ctx context.Context) error {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		d.mu.Lock()
		ended, subject, cursor := d.ended, d.subject(), d.Cursor
		d.mu.Unlock()
		if ended || ctx.Err() != nil { // the end of a subscription is sent in any case
			return context.Cause(ctx)
		}
		_, _, err := d.sender.feed.Begin(ctx, subject, events.Start{Cursor: cursor})
		if final, ok := errors.AsType[*mcp.Error](err); err == nil || ok && isFinal(final) {
			return err
		}
		d.warn(err)
		sleep(ctx, withJitter(backoff))
	}
}

// warn logs a failure of the feed.
func (d *subscription) warn(err error) {
	d.sender.o.Logger.Warn("webhook: the feed of a subscription failed; it is tried again", "id", d.id, "event", d.Name,
		"error", err)
}

// succeeded records that the endpoint responded.
func (d *subscription) succeeded(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Pending, d.Failures, d.FailedSince, d.LastError = pending{}, 0, time.Time{}, ""
	d.LastDelivery = at
	d.changed()
}

// failed records an attempt that failed. It reports whether it was the last attempt.
func (d *subscription) failed(ctx context.Context, id, category string) (last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.Failures++; d.FailedSince.IsZero() {
		d.FailedSince = now
	}
	d.LastError = category
	if d.Pending.ID != id {
		d.Pending = pending{ID: id}
	}
	switch {
	case d.Pending.Attempts == len(retryDelays):
		d.Pending, last = pending{}, true
	default:
		d.Pending.Next = now.Add(withJitter(retryDelays[d.Pending.Attempts]))
		d.Pending.Attempts++
	}
	if d.Failures >= suspendFailures && now.Sub(d.FailedSince) >= suspendAfter {
		d.Suspended = true
	}
	d.putOrLater(ctx)
	return last
}

// exchange sends a message and reads the response, up to maxReply bytes.
func (s *Sender) exchange(ctx context.Context, url, subscription, id string, body []byte,
	secrets []Secret) (status int, reply []byte, category string) {
	ctx, cancel := context.WithTimeout(ctx, min(s.o.Timeout, s.fetch.Timeout()))
	defer cancel()
	if _, err := s.checkURL(url); err != nil {
		return 0, nil, CategoryRefused
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, CategoryRefused
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(headerSubscription, subscription)
	// Without values the field is not sent. It tells the transport that the request may be repeated
	// if a connection was closed meanwhile.
	req.Header["Idempotency-Key"] = nil
	Sign(req.Header, id, time.Now(), body, secrets...)
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, categoryOf(err)
	}
	defer resp.Body.Close()
	if resp.ContentLength != 0 {
		reply, _ = io.ReadAll(io.LimitReader(resp.Body, maxReply))
	}
	switch {
	case resp.StatusCode/100 == 2: // the message was accepted, even if the body is incomplete
		return resp.StatusCode, reply, ""
	case resp.StatusCode >= http.StatusInternalServerError:
		return resp.StatusCode, nil, CategoryHTTP5xx
	}
	return resp.StatusCode, nil, CategoryHTTP4xx
}

// categoryOf returns the category of an error without a response.
func categoryOf(err error) string {
	var network net.Error
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return CategoryTimeout
	case errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, new(x509.HostnameError)),
		errors.Is(err, http.ErrSchemeMismatch):
		return CategoryTLS
	}
	return CategoryRefused
}

// challenge asks an endpoint whether it accepts deliveries.
//
// Spec: SEP-3415, Webhook security, Endpoint verification.
func (s *Sender) challenge(ctx context.Context, id, url string, secret Secret) error {
	nonce := rand.Text()
	body, err := jsonv2.Marshal(envelope{Type: typeVerification, Challenge: nonce})
	if err != nil {
		return err
	}
	status, reply, category := s.exchange(ctx, url, id, messageID(typeVerification), body, []Secret{secret})
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if status != 0 {
		var answer struct {
			Challenge string `json:"challenge"`
		}
		category = CategoryChallenge
		if status/100 == 2 && jsonv2.Unmarshal(reply, &answer) == nil &&
			subtle.ConstantTimeCompare([]byte(answer.Challenge), []byte(nonce)) == 1 {
			return nil
		}
	}
	return dataError(events.CodeCallbackEndpoint, "the endpoint did not confirm that it accepts deliveries",
		`{"reason":"`+category+`"}`)
}
