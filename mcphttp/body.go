package mcphttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/readbuf"
)

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
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > h.opts.MaxBody {
		h.limitBodyTime(w, r)
		return nil, tooLarge(w)
	}
	body, err := h.readInTime(w, r)
	switch {
	case err == nil:
		_ = r.Body.Close() // otherwise net/http tries to read more before it writes the response
		return body, nil
	case errors.Is(err, errTooLarge):
		return nil, tooLarge(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusRequestTimeout, "the body did not arrive in time")
	}
	w.Header().Set("Connection", "close")
	return nil, refuse(http.StatusBadRequest, "the body could not be read")
}

// readInTime reads a body to its end. After an error the rest of the body has the same deadline.
func (h *Handler) readInTime(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
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
	return readClaimed(r.Body, r.ContentLength, h.opts.MaxBody)
}

var errTooLarge = errors.New("body is too large")

func tooLarge(w http.ResponseWriter) *refusal {
	w.Header().Set("Connection", "close") // reading to the end would defeat the limit
	return refuse(http.StatusRequestEntityTooLarge, "the body is too large")
}

// readClaimed reads at most limit bytes to the end of r. The claim is the announced length,
// negative if it is unknown.
func readClaimed(r io.Reader, claim, limit int64) ([]byte, error) {
	// The buffer is never reused after an error: r may be the user's and still write to it. It has
	// room for one byte more than the limit.
	body := readbuf.Buffer{Limit: limit + 1}
	for {
		n, err := r.Read(body.Space(claim))
		body.Filled(n)
		switch {
		case int64(body.Len()) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return body.Drain(), nil
		case err != nil:
			return nil, err
		}
	}
}
