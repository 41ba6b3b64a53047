package mcphttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// firstRead is how much room a body gets at first, if it does not say that it is smaller. What it claims to be costs
// nothing until it arrives.
const firstRead = 4 << 10

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
	room := int64(firstRead)
	if claim >= 0 {
		room = min(room-1, claim) + 1 // the end is seen without growing
	}
	return readOn(r, make([]byte, 0, room), claim, limit)
}

// readAll appends r to b, up to its end, at most limit bytes in all.
func readAll(r io.Reader, b []byte, limit int64) ([]byte, error) { return readOn(r, b, -1, limit) }

func readOn(r io.Reader, b []byte, claim, limit int64) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, roomFor(int64(len(b)), claim))
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// roomFor gives how much room to add for a body of which some has arrived. Each growth is a copy, so it is all that the
// body claims, if a fifth of that is there: a claim that is not kept still costs little then.
func roomFor(arrived, claim int64) int {
	switch left := claim + 1 - arrived; {
	case left <= 0:
		return int(arrived)
	case left <= 4*arrived:
		return int(left)
	}
	return int(3 * arrived)
}
