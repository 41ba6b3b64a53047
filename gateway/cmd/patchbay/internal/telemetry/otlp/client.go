// Package otlp sends spans and metrics to a collector, by OTLP over HTTP. The exporters of OpenTelemetry
// for HTTP would link gRPC.
package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Limits of an export.
const (
	maxRequest   = 64 << 20         // bytes before compression, as in the exporters of OpenTelemetry
	maxResponse  = 64 << 10         // bytes; a collector reports a count and a sentence
	maxTime      = time.Minute      // for all attempts, if the timeout of the SDK, by default 30 s, is longer
	firstBackoff = 5 * time.Second  // before the second attempt; each further backoff is half as long again
	maxBackoff   = 30 * time.Second // so that an export has several attempts
)

// contentType is the type of requests, and of the responses that a Client decodes.
const contentType = "application/x-protobuf"

var errRedirected = errors.New("the collector sends a redirect, which is not followed: another server would receive " +
	"the headers and the data; set its own URL as the endpoint")

// A Client sends spans and metrics to a collector. It implements [otlptrace.Client], and is safe for
// concurrent use.
type Client struct {
	URL       string
	Header    http.Header   // of each request
	Gzip      bool          // compresses requests
	Timeout   time.Duration // of an attempt; 0 means no limit
	Transport http.RoundTripper
	// Over ends exports, with its cause.
	Over context.Context
	// Ending, if closed, ends the pauses of exports: a further attempt follows at once, and is the last.
	Ending <-chan struct{}
	// Report receives the outcome of each export. The methods of exporters return nil instead, so that
	// the SDK does not report errors a second time.
	Report func(error)
}

var _ otlptrace.Client = (*Client)(nil)

// A PartialError reports that a collector rejected a part of an export, or accepted it with a warning.
type PartialError struct {
	Rejected int64 // spans or points of metrics
	Message  string
}

// Error returns the number and the message.
func (e *PartialError) Error() string {
	return fmt.Sprintf("%d spans or points were rejected: %s", e.Rejected, e.Message)
}

// A temporaryError is the error of an attempt that may be repeated, after a delay that the collector
// requires or 0.
type temporaryError struct {
	error
	after time.Duration
}

// Start has no effect: a request opens a connection.
func (c *Client) Start(context.Context) error { return nil }

// Stop closes the connections that are not in use.
func (c *Client) Stop(context.Context) error {
	c.client().CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. Attempts without a response, or that the collector asks to repeat, are repeated
// until ctx ends, for at most a minute. The spans of an export that fails are lost. The outcome is a
// [*PartialError] if the collector rejected a part.
func (c *Client) UploadTraces(ctx context.Context, spans []*traces.ResourceSpans) error {
	c.Report(c.send(ctx, &traces.TracesData{ResourceSpans: spans}))
	return nil
}

// send sends TracesData or MetricsData, which are encoded as the requests of the protocol.
func (c *Client) send(ctx context.Context, message proto.Message) error {
	body, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxRequest {
		return fmt.Errorf("the export has %d bytes: must be at most %d", len(body), maxRequest)
	}
	if c.Gzip {
		body = compress(body)
	}
	ctx, over := context.WithCancelCause(ctx)
	defer over(nil)
	defer context.AfterFunc(c.Over, func() { over(context.Cause(c.Over)) })()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	end, _ := ctx.Deadline()
	last := false
	for backoff := firstBackoff; ; backoff = min(backoff*3/2, maxBackoff) {
		err := c.attempt(ctx, body)
		temporary, ok := err.(*temporaryError)
		if !ok || last {
			return err
		}
		delay := max(temporary.after, backoff/2+rand.N(backoff))
		if delay > time.Until(end) {
			return err
		}
		select {
		case <-time.After(delay):
		case <-c.Ending:
			last = true
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func (c *Client) client() *http.Client {
	return &http.Client{Transport: c.Transport, Timeout: c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirected }}
}

func compress(message []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(message) // to memory
	_ = w.Close()
	return b.Bytes()
}

// attempt sends a request.
func (c *Client) attempt(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(request.Header, c.Header)
	request.Header.Set("Content-Type", contentType)
	if c.Gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := c.client().Do(request)
	if errors.Is(err, errRedirected) {
		return err
	}
	if err != nil { // such as a timeout, or a connection that is refused or reset
		return &temporaryError{err, 0} // send ends with ctx
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	decodes := response.Header.Get("Content-Type") == contentType
	if response.StatusCode/100 == 2 {
		if err == nil && decodes {
			err = partial(text)
		}
		return err
	}
	if decodes {
		_, text, _ = find(text, 2) // the message of a Status
	}
	err = fmt.Errorf("the collector responds %s: %s", response.Status, text)
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &temporaryError{err, retryAfter(response.Header.Get("Retry-After"))}
	}
	return err
}

// retryAfter returns the delay of a header Retry-After, which contains seconds or a time, or 0.
func retryAfter(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(seconds) * time.Second
	}
	if t, err := http.ParseTime(value); err == nil {
		return time.Until(t)
	}
	return 0
}

// partial returns the partial success that a response contains, if any.
func partial(response []byte) error {
	_, success, err := find(response, 1)
	rejected, _, countErr := find(success, 1)
	_, message, messageErr := find(success, 2)
	if err := cmp.Or(err, countErr, messageErr); err != nil {
		return fmt.Errorf("the collector sends an invalid response: %w", err)
	}
	if rejected != 0 || len(message) > 0 {
		return &PartialError{int64(rejected), string(message)}
	}
	return nil
}

// find returns the last value of a field, as a number or as bytes.
func find(message []byte, field protowire.Number) (number uint64, text []byte, err error) {
	for len(message) > 0 {
		found, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return 0, nil, protowire.ParseError(size)
		}
		_, _, tag := protowire.ConsumeTag(message)
		if value := message[tag:size]; found == field && kind == protowire.VarintType {
			number, _ = protowire.ConsumeVarint(value)
		} else if found == field && kind == protowire.BytesType {
			text, _ = protowire.ConsumeBytes(value)
		}
		message = message[size:]
	}
	return number, text, nil
}
