package mcphttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/readbuf"
)

// Limits of the bodies in memory, in bytes: those that are being read, and those of requests in
// progress, which include open subscriptions. A larger MaxBody raises them.
const (
	maxBodies         = 256 << 20 // in total
	maxBodiesOfCaller = 64 << 20
	// maxFreeBody is not counted. It is no more than what a connection needs anyway.
	maxFreeBody = readbuf.FirstChunk
)

func newBodyQuota(maxBody int64) *quota {
	return newQuota("bytes of requests", max(maxBodies, 4*maxBody), max(maxBodiesOfCaller, maxBody))
}

// A bodyCharge is the bytes that the body of one request takes of the quota. It belongs to the
// goroutine that serves the request.
type bodyCharge struct {
	quota   *quota
	caller  caller
	bytes   int64
	refused *refusal // set if the quota was exceeded
}

// set changes the bytes to n. It reports false if the quota is exceeded.
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

// take returns the charge and leaves none, so that another goroutine can release it.
func (c *bodyCharge) take() *bodyCharge {
	taken := *c
	*c = bodyCharge{}
	return &taken
}

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(0, 0)

// limitBodyTime sets the deadline of a body that the handler does not read: net/http reads to its
// end to reuse the connection, without a limit of time.
func (h *Handler) limitBodyTime(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	}
}

func expireRead(w http.ResponseWriter) (again bool) {
	_ = http.NewResponseController(w).SetReadDeadline(aLongTimeAgo)
	return false
}

// readBody reads the body of a POST, within the limits of size and time.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, charge *bodyCharge) ([]byte, *refusal) {
	*charge = bodyCharge{quota: h.bodies, caller: h.caller(r)}
	if r.ContentLength > h.opts.MaxBody {
		h.limitBodyTime(w, r)
		return nil, tooLarge(w)
	}
	body, err := h.readInTime(w, r, charge)
	switch {
	case err == nil:
		_ = r.Body.Close() // otherwise net/http tries to read more before it writes the response
		return body, nil
	case errors.Is(err, errTooLarge):
		return nil, tooLarge(w)
	case errors.Is(err, errTooManyBodies):
		w.Header().Set("Connection", "close")
		return nil, charge.refused
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusRequestTimeout, "the body did not arrive in time")
	}
	w.Header().Set("Connection", "close")
	return nil, refuse(http.StatusBadRequest, "the body could not be read")
}

// readInTime reads a body to its end. After an error the rest of the body has the same deadline.
func (h *Handler) readInTime(w http.ResponseWriter, r *http.Request, charge *bodyCharge) (body []byte, err error) {
	d := h.bodyReads.add(w)
	until := d.at
	defer func() {
		if h.bodyReads.remove(d) {
			// Even if the body was complete: the read deadline of the connection has passed.
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			_ = http.NewResponseController(w).SetReadDeadline(until)
		}
	}()
	return readClaimed(r.Body, r.ContentLength, h.opts.MaxBody, charge)
}

var (
	errTooLarge      = errors.New("body is too large")
	errTooManyBodies = errors.New("bodies in memory are too large")
)

func tooLarge(w http.ResponseWriter) *refusal {
	w.Header().Set("Connection", "close") // reading to the end would defeat the limit
	return refuse(http.StatusRequestEntityTooLarge, "the body is too large")
}

// readClaimed reads at most limit bytes to the end of r. The claim is the announced length,
// negative if it is unknown. The charge is that of the memory in use; after an error it remains
// until it is released.
func readClaimed(r io.Reader, claim, limit int64, charge *bodyCharge) ([]byte, error) {
	// The buffer is never reused after an error: r may be the user's and still write to it. It has
	// room for one byte more than the limit.
	body := readbuf.Buffer{Limit: limit + 1}
	for {
		space := body.Space(claim)
		if !charge.set(int64(body.Len() + len(space))) {
			return nil, errTooManyBodies
		}
		n, err := r.Read(space)
		body.Filled(n)
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
