package mcphttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/readbuf"
)

// past is a deadline that is over.
var past = time.Unix(0, 0)

// boundBody sets the time in which the body of a request has to arrive that is not read here: net/http reads on for its
// end, to use the connection again, and would wait for ever.
func (h *Handler) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	}
}

// breakRead makes the read that is going on fail.
func breakRead(w http.ResponseWriter) (again bool) {
	_ = http.NewResponseController(w).SetReadDeadline(past)
	return false
}

// readBody reads the body of a POST, within the limits of size and time.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > h.opts.MaxBody {
		h.boundBody(w, r)
		return nil, tooLarge(w)
	}
	body, err := h.readInTime(w, r)
	switch {
	case err == nil:
		_ = r.Body.Close() // it has ended: else net/http looks for more of it before it writes the answer
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

// readInTime reads a body to its end. What is left of it after an error has no more time than the whole had.
func (h *Handler) readInTime(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	reading := h.bodies.start(w)
	until := reading.until
	defer func() {
		if h.bodies.stop(reading) {
			err = os.ErrDeadlineExceeded // also if it came at the last moment: the connection is of no more use
		}
		if err != nil {
			_ = http.NewResponseController(w).SetReadDeadline(until)
		}
	}()
	return readClaimed(r.Body, r.ContentLength, h.opts.MaxBody)
}

var errTooLarge = errors.New("body is too large")

func tooLarge(w http.ResponseWriter) *refusal {
	w.Header().Set("Connection", "close") // reading on to the end would be the work that the limit is to save
	return refuse(http.StatusRequestEntityTooLarge, "the body is too large")
}

// readClaimed reads r, which is said to have claim bytes or an unknown number if negative, to its end: at most limit.
func readClaimed(r io.Reader, claim, limit int64) ([]byte, error) {
	// It is dropped by Take alone: r may be the user's, and leave a read behind that writes when it has failed. There is room
	// for one byte that is too many.
	body := readbuf.Buffer{Limit: limit + 1}
	for {
		n, err := r.Read(body.Space(claim))
		body.Filled(n)
		switch {
		case int64(body.Len()) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return body.Take(), nil
		case err != nil:
			return nil, err
		}
	}
}
