// Package round seals the states that callers carry between the requests of a call, and the
// positions in lists.
package round

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// TTL is how long a caller may take to answer. A call that waits at the server ends earlier.
	TTL = time.Hour
	// maxState limits the state of a server that a caller carries, in bytes: with its encoding it fits
	// the 64 KiB that clients are known to accept.
	maxState = 44 << 10
)

// ErrInvalid is the only answer to a state that this host did not issue for the request. It must
// not reveal the reason.
var ErrInvalid = mcp.Errorf(mcp.CodeInvalidParams,
	"invalid params.requestState: unknown, expired, or of another request")

// A State is the content of a sealed requestState: it identifies the connection that asked, and
// contains the state of the server.
type State struct {
	Server   string   `json:"s"`
	Call     string   `json:"a,omitzero"` // the id of its records
	Class    string   `json:"c,omitzero"`
	Instance string   `json:"i,omitzero"`  // the id of the connection that must serve the next round
	Target   string   `json:"t,omitzero"`  // name or URI at the server, with Instance
	Roots    []string `json:"r,omitempty"` // questions that the configuration answers
	State    *string  `json:"u,omitempty"` // of the server
	Policy   string   `json:"p,omitzero"`  // identifies the request that was approved
	Nonce    string   `json:"n,omitzero"`  // of an approved request, which can be continued once
	Expires  int64    `json:"e"`           // in seconds since 1970
}

// A Sealer encrypts and binds request states: a server that sees a shared credential gets no state
// of another caller.
type Sealer struct{ Ring *seal.KeyRing }

// NewSealer returns a Sealer. The first key encrypts, all keys decrypt; without keys, it uses a
// random key.
func NewSealer(keys [][]byte) (*Sealer, error) {
	var ring []seal.Key
	for _, k := range keys {
		ring = append(ring, seal.Key{Secret: k})
	}
	r, err := seal.NewKeyRing("patchbay host state", ring...)
	if err != nil {
		return nil, fmt.Errorf("host: Options.StateKeys: %w", err)
	}
	return &Sealer{r}, nil
}

// Bound returns the values that a state is bound to.
func Bound(c *policy.Caller, req *mcp.Request) []string {
	return []string{"request", c.Key(), c.Profile, c.Server, req.Method, digest(req)}
}

// Seal returns the text of a state, which the caller of the request must send with its answer.
func (s *Sealer) Seal(c *policy.Caller, req *mcp.Request, st State) (string, error) {
	if st.State != nil && len(*st.State) > maxState {
		return "", hosterr.Public{Err: fmt.Errorf(
			"requestState of %d bytes: want at most %d", len(*st.State), maxState)}
	}
	st.Expires = time.Now().Add(TTL).Unix()
	plain, err := json.Marshal(st)
	if err != nil {
		return "", err
	}
	return s.Ring.SealText(plain, Bound(c, req)...), nil
}

// Open returns the state in a text that Seal returned for an earlier round of the request.
func (s *Sealer) Open(c *policy.Caller, req *mcp.Request, text string) (st State, err error) {
	plain, _, err := s.Ring.OpenText(text, Bound(c, req)...)
	if err != nil || json.Unmarshal(plain, &st) != nil || time.Now().Unix() > st.Expires {
		return st, ErrInvalid
	}
	return st, nil
}

// digest identifies the params of a request except the params that change between rounds. Clients
// may order and format the members of params differently each time.
func digest(req *mcp.Request) string {
	h := sha256.New()
	members := map[string]jsontext.Value{}
	for key, value := range jsonscan.Members(req.Params) {
		switch string(key) {
		case "_meta", "inputResponses", "requestState":
		default:
			members[string(key)] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		raw := members[key]
		value := raw.Clone()
		if len(value) > 0 && value.Canonicalize() != nil {
			value = raw
		}
		fmt.Fprintf(h, "%q %d ", key, len(value))
		h.Write(value)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// StateOf returns the member requestState of a request.
func StateOf(req *mcp.Request) (state string, ok bool, err error) {
	raw, ok := req.Param("requestState")
	if !ok {
		return "", false, nil
	}
	if state, err = jsonscan.Unquote(raw); err != nil {
		return "", true, ErrInvalid
	}
	return state, true, nil
}

// Continues reports whether a request contains an answer to a question of its server.
func Continues(req *mcp.Request) bool {
	_, answers := req.Param("inputResponses")
	_, state := req.Param("requestState")
	return answers || state
}
