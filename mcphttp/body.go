package mcphttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/readbuf"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Limits of the bodies in memory, in bytes: the bodies that are being read, and the bodies of
// requests in progress. A larger MaxBody raises them.
const (
	maxBodies         = 256 << 20 // in total
	maxBodiesOfCaller = 64 << 20
	// Open subscriptions last for hours. Separate limits apply to their filters, so that they do
	// not take the memory of bodies.
	maxFilters         = maxBodies / 2
	maxFiltersOfCaller = maxBodiesOfCaller / 2
	// maxFreeBody is the largest body that is not counted. A connection holds buffers of that size
	// anyway.
	maxFreeBody = readbuf.FirstChunk
)

func newBodyQuota(maxBody int64) *quota {
	largest := maxBody + 1 // the buffer of the largest body holds one byte more
	return newQuota("bytes of requests", max(maxBodies, 4*largest), max(maxBodiesOfCaller, largest))
}

// A bodyCharge is the number of bytes that the body of a request takes of the quota. It belongs to
// the goroutine that serves the request.
type bodyCharge struct {
	quota   *quota
	caller  caller
	bytes   int64
	refused *refusal // set if the quota was exceeded
}

// set changes the charge to n bytes, and reports whether the quota allows that.
func (c *bodyCharge) set(n int64) bool {
	switch {
	case c.quota == nil:
		return true
	case n <= maxFreeBody:
		n = 0
	}
	switch {
	case n > c.bytes:
		if c.refused = c.quota.acquire(c.caller, n-c.bytes); c.refused != nil {
			return false
		}
	case n < c.bytes:
		c.quota.release(c.caller, c.bytes-n)
	}
	c.bytes = n
	return true
}

func (c *bodyCharge) release() { c.set(0) }

// move returns the charge and empties c, so that another goroutine can release it.
func (c *bodyCharge) move() *bodyCharge {
	moved := *c
	*c = bodyCharge{}
	return &moved
}

// keepParams copies the params of a subscription out of its body, so that the body can be freed,
// and replaces the charge by the size of the bytes that are kept.
func (h *Handler) keepParams(c *bodyCharge, msg *jsonrpc.Message) *refusal {
	kept := bodyCharge{quota: h.filters, caller: c.caller}
	if !kept.set(int64(len(msg.Params))) {
		return kept.refused
	}
	msg.Params = bytes.Clone(msg.Params)
	c.release()
	*c = kept
	return nil
}

// aLongTimeAgo is a deadline in the past.
var aLongTimeAgo = time.Unix(0, 0)

// limitBodyTime sets the deadline of a body that the handler does not read: net/http reads to its
// end to reuse the connection, without a limit of time.
func (h *Handler) limitBodyTime(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	}
}

const (
	// bodyInterval is the longest interval at which the rate of a body is checked.
	bodyInterval = 10 * time.Second
	// minBodyRate is how many bytes of a body must arrive in each second on average, over an
	// interval. The slowest mobile networks are faster.
	minBodyRate = 512
)

// A bodyRead is a body that is being read.
type bodyRead struct {
	w       http.ResponseWriter
	until   time.Time
	every   time.Duration
	arrived atomic.Int64 // bytes since the last check
}

// rateInterval returns the interval at which the rates of bodies are checked. A whole number of
// intervals is the time limit of a body.
func rateInterval(timeout time.Duration) time.Duration {
	return timeout / ((timeout + bodyInterval - 1) / bodyInterval)
}

// check ends a read that has exceeded its time or is too slow. It is called at every interval.
func (b *bodyRead) check() (again bool) {
	tooSlow := b.arrived.Swap(0) < int64(b.every.Seconds()*minBodyRate)
	if !tooSlow && time.Until(b.until) >= b.every/2 {
		return true
	}
	_ = http.NewResponseController(b.w).SetReadDeadline(aLongTimeAgo)
	return false
}

// readBody reads the body of a POST, within the limits of size and time.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, head *head) ([]byte, *refusal) {
	charge := &head.body
	charge.quota = h.bodies
	if r.ContentLength > h.opts.MaxBody {
		h.limitBodyTime(w, r)
		return nil, tooLarge(w, r)
	}
	body, err := h.readInTime(w, r, charge)
	switch {
	case err == nil:
		_ = r.Body.Close() // otherwise net/http tries to read more before it writes the response
		return body, nil
	case errors.Is(err, errTooLarge):
		return nil, tooLarge(w, r)
	case errors.Is(err, errTooManyBodies):
		closeConnection(w, r)
		return nil, charge.refused
	case errors.Is(err, os.ErrDeadlineExceeded):
		closeConnection(w, r)
		return nil, refuse(http.StatusRequestTimeout, "the body did not arrive in time")
	}
	closeConnection(w, r)
	return nil, refuse(http.StatusBadRequest, "the body could not be read")
}

// readInTime reads a body to its end. After an error the same deadline limits the rest of the body.
func (h *Handler) readInTime(w http.ResponseWriter, r *http.Request, charge *bodyCharge) (body []byte, err error) {
	now := time.Now()
	until := now.Add(h.opts.BodyTimeout)
	d := h.bodyReads.add(bodyRead{w: w, until: until, every: h.bodyReads.timeout}, now)
	defer func() {
		if h.bodyReads.remove(d) {
			// Even if the body was complete: the read deadline of the connection passed.
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			_ = http.NewResponseController(w).SetReadDeadline(until)
		}
	}()
	return readClaimed(r.Body, r.ContentLength, h.opts.MaxBody, charge, &d.item.arrived)
}

var (
	errTooLarge      = errors.New("body is too large")
	errTooManyBodies = errors.New("bodies in memory are too large")
)

// closeConnection lets net/http close the connection after the response, instead of reading the
// body to its end. On HTTP/2 a connection carries other streams, and only this stream is reset.
func closeConnection(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

func tooLarge(w http.ResponseWriter, r *http.Request) *refusal {
	closeConnection(w, r) // reading to the end would defeat the limit
	return refuse(http.StatusRequestEntityTooLarge, "the body is too large")
}

// readClaimed reads at most limit bytes to the end of r. The claim is the announced length,
// negative if it is unknown. The charge is that of the memory in use; after an error it remains
// until it is released. The bytes are added to arrived.
func readClaimed(r io.Reader, claim, limit int64, charge *bodyCharge, arrived *atomic.Int64) ([]byte, error) {
	// The buffer is never reused after an error: r may be the user's and still write to it. It
	// holds one byte more than the limit.
	body := readbuf.Buffer{Limit: limit + 1}
	for {
		space := body.Space(claim)
		if !charge.set(int64(body.Len() + len(space))) {
			return nil, errTooManyBodies
		}
		n, err := r.Read(space)
		body.Filled(n)
		arrived.Add(int64(n))
		switch {
		case int64(body.Len()) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			charge.set(int64(body.Len()))
			return body.Drain(), nil
		case err != nil:
			return nil, err
		}
	}
}
