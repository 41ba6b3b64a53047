package mcp

import (
	"errors"
	"fmt"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// An eraVerdict is what a server was found to be.
type eraVerdict uint8

const (
	eraUnknown eraVerdict = iota
	eraModern
	eraLegacy
)

// eras remembers what servers are, by [KeyedTransport.ServerKey].
//
// Spec: basic/versioning (2026-07-28): clients cache what they have found.
var eras struct {
	sync.Mutex
	found map[string]finding
}

type finding struct {
	era   eraVerdict
	until time.Time
}

const (
	// maxEras bounds the servers that are remembered: more than one process talks to.
	maxEras = 1000
	// eraMemory is how long a verdict is believed. A server that is brought up to date is noticed after it.
	eraMemory = time.Hour
)

func (c *Client) verdict() eraVerdict {
	keyed, ok := c.transport.(KeyedTransport)
	if !ok {
		return eraUnknown
	}
	eras.Lock()
	defer eras.Unlock()
	if f := eras.found[keyed.ServerKey()]; time.Now().Before(f.until) {
		return f.era
	}
	return eraUnknown
}

func (c *Client) remember(v eraVerdict) {
	keyed, ok := c.transport.(KeyedTransport)
	if !ok {
		return
	}
	eras.Lock()
	defer eras.Unlock()
	if len(eras.found) >= maxEras {
		clear(eras.found)
	}
	put(&eras.found, keyed.ServerKey(), finding{v, time.Now().Add(eraMemory)})
}

// judge says of an error of the probe whether the server may be one of the session era.
//
// Spec: basic/versioning (2026-07-28): fallback is not keyed to one error code.
func (c *Client) judge(err error) error {
	var failed *TransportError
	switch e := asError(err); {
	case isUnauthorized(err):
		return err // whatever else it says, it says to one whom it does not know
	case e != nil && e.Code == CodeUnsupportedVersion:
		return c.noCommon(supportedVersions(e))
	case e != nil && (e.Code == CodeHeaderMismatch || e.Code == CodeMissingCapability):
		return err // it is modern, and does not want us
	case e != nil, errors.Is(err, ErrTimeout), errors.Is(err, ErrInvalidResult), isEraSignal(err):
		return &notModern{err}
	case errors.As(err, &failed) && failed.MayHaveRun && ended(err) && c.isStream():
		return &notModern{err} // it died of it, and is started again
	}
	return err
}

// isUnauthorized reports whether an HTTP status says that it depends on who asks.
func isUnauthorized(err error) bool {
	var status interface{ HTTPStatus() int }
	return errors.As(err, &status) && (status.HTTPStatus() == 401 || status.HTTPStatus() == 403)
}

func (c *Client) isStream() bool {
	_, ok := c.transport.(interface{ streams() *connTransport })
	return ok
}

// isEraSignal reports whether an HTTP status says that the server did not understand, rather than that it is unwell or
// wants to know who asks.
func isEraSignal(err error) bool {
	var status interface{ HTTPStatus() int }
	if !errors.As(err, &status) {
		return false
	}
	switch s := status.HTTPStatus(); s {
	case 401, 403, 407, 408, 413, 425, 429, 431, 451:
		return false
	default:
		return s >= 200 && s < 300 || s >= 400 && s < 500
	}
}

// noCommon decides what a server is that does not speak our modern revision.
func (c *Client) noCommon(versions []string) error {
	const shown = 20 // of a stranger's list
	err := fmt.Errorf("%w: the server speaks %.64q, this client %s", ErrNoRevision, versions[:min(len(versions), shown)], spokenVersions())
	for _, v := range versions {
		if r, ok := wire.ParseRevision(v); ok && !r.Modern() {
			return &notModern{err}
		}
	}
	return err
}

// supportedVersions reads the data of an error that says that a revision is not spoken.
func supportedVersions(e *Error) []string {
	var data struct {
		Supported []string `json:"supported"`
	}
	_ = jsonv2.Unmarshal(e.Data, &data) // what cannot be read supports nothing
	return data.Supported
}
