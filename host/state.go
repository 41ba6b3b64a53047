package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// stateTTL is how long a caller may take to answer. A call that waits at the server ends earlier.
	stateTTL = time.Hour
	// maxState bounds the state of a server that a caller carries, in bytes: with its encoding it fits
	// the 64 KiB that clients are known to accept.
	maxState = 44 << 10
)

// errInvalidState is the only answer to a state that this host has not issued for the request. It
// does not say what is wrong.
var errInvalidState = mcp.Errorf(mcp.CodeInvalidParams,
	"invalid params.requestState: unknown, expired, or of another request")

// A requestState is the content of a sealed requestState: which instance has asked, and its state.
type requestState struct {
	Server   string   `json:"s"`
	Call     string   `json:"a,omitzero"` // the id of its records
	Class    string   `json:"c,omitzero"`
	Instance string   `json:"i,omitzero"`  // the start of an instance of the session era; see instance.id
	Target   string   `json:"t,omitzero"`  // name or URI at the server, with Instance
	Roots    []string `json:"r,omitempty"` // questions that the configuration answers
	State    *string  `json:"u,omitempty"` // of the server
	Policy   string   `json:"p,omitzero"`  // see [approval.bind]
	Nonce    string   `json:"n,omitzero"`  // of an approved request, which can be continued once
	Expires  int64    `json:"e"`           // in seconds since 1970
}

// A stateSealer encrypts and binds request states: a server that sees one shared credential gets
// no state of another caller.
type stateSealer struct{ ring *seal.KeyRing }

func newStateSealer(keys [][]byte) (*stateSealer, error) {
	var ring []seal.Key
	for _, k := range keys {
		ring = append(ring, seal.Key{Secret: k})
	}
	r, err := seal.NewKeyRing("patchbay host state", ring...)
	if err != nil {
		return nil, fmt.Errorf("host: Options.StateKeys: %w", err)
	}
	return &stateSealer{r}, nil
}

// bound returns what a state is bound to.
func bound(c *Caller, req *mcp.Request) []string {
	return []string{"request", c.Key(), c.Profile, c.Server, req.Method, digest(req)}
}

func (s *stateSealer) seal(c *Caller, req *mcp.Request, st requestState) (string, error) {
	if st.State != nil && len(*st.State) > maxState {
		return "", hosterr.Public{Err: fmt.Errorf("requestState of %d bytes: want at most %d", len(*st.State), maxState)}
	}
	st.Expires = time.Now().Add(stateTTL).Unix()
	plain, err := json.Marshal(st)
	if err != nil {
		return "", err
	}
	return s.ring.SealText(plain, bound(c, req)...), nil
}

func (s *stateSealer) open(c *Caller, req *mcp.Request, text string) (st requestState, err error) {
	plain, _, err := s.ring.OpenText(text, bound(c, req)...)
	if err != nil || json.Unmarshal(plain, &st) != nil || time.Now().Unix() > st.Expires {
		return st, errInvalidState
	}
	return st, nil
}

// digest identifies the params of a request other than those that change between rounds. Clients may
// order and format the members of params differently each time.
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

// requestStateOf returns the member requestState of a request.
func requestStateOf(req *mcp.Request) (state string, ok bool, err error) {
	raw, ok := req.Param("requestState")
	if !ok {
		return "", false, nil
	}
	if state, err = jsonscan.Unquote(raw); err != nil {
		return "", true, errInvalidState
	}
	return state, true, nil
}

// continues reports whether a request has the answer to a question of its server.
func continues(req *mcp.Request) bool {
	_, answers := req.Param("inputResponses")
	_, state := req.Param("requestState")
	return answers || state
}

var errNoInstance = errors.New("the call waited for an answer, and its server has been restarted since")
