package webhook

import (
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A record is a subscription as it is encoded in a [Record]. A record exists only if its URL was
// verified for its principal.
type record struct {
	Version   int             `json:"version"`
	Principal principal       `json:"principal"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Scope     string          `json:"scope,omitzero"`
	Details   json.RawMessage `json:"details,omitzero"`
	URL       string          `json:"url"`
	Secrets   []storedSecret  `json:"secrets"`
	Expires   time.Time       `json:"expires,omitzero"` // zero without end
	progress
}

// recordVersion is the version of the encoding.
const recordVersion = 1

// A principal is a [mcp.Principal] without its claims, which may be large and confidential.
type principal struct {
	Issuer   string   `json:"issuer,omitzero"`
	Subject  string   `json:"subject,omitzero"`
	ClientID string   `json:"clientId,omitzero"`
	Scopes   []string `json:"scopes,omitzero"`
}

func storedPrincipal(p *mcp.Principal) principal {
	return principal{Issuer: p.Issuer, Subject: p.Subject, ClientID: p.ClientID, Scopes: p.Scopes}
}

func (p principal) public() *mcp.Principal {
	return &mcp.Principal{Issuer: p.Issuer, Subject: p.Subject, ClientID: p.ClientID, Scopes: p.Scopes}
}

// A storedSecret signs deliveries until it ends.
type storedSecret struct {
	Secret string    `json:"secret"`
	Until  time.Time `json:"until,omitzero"` // zero for the secret that the client sent last
	parsed Secret
}

// progress is the state of the deliveries of a subscription.
type progress struct {
	Cursor       string    `json:"cursor,omitzero"` // every event up to it was accepted or given up
	Gap          bool      `json:"gap,omitzero"`    // events were given up, and the endpoint does not know yet
	Pending      pending   `json:"pending,omitzero"`
	Suspended    bool      `json:"suspended,omitzero"`
	Failures     int       `json:"failures,omitzero"` // since the last success
	FailedSince  time.Time `json:"failedSince,omitzero"`
	LastDelivery time.Time `json:"lastDelivery,omitzero"`
	LastError    string    `json:"lastError,omitzero"`
}

// pending is the message that was sent and not accepted yet.
type pending struct {
	ID       string    `json:"id"`
	Attempts int       `json:"attempts"`
	Next     time.Time `json:"next"` // the next attempt
}

// decodeRecord reads the Data of a [Record].
func decodeRecord(data []byte) (*record, error) {
	var r record
	if err := jsonv2.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("decode the record: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("unsupported version %d of a record, want %d", r.Version, recordVersion)
	}
	if len(r.Secrets) == 0 {
		return nil, fmt.Errorf("the record contains no secret")
	}
	for i := range r.Secrets {
		parsed, err := ParseSecret(r.Secrets[i].Secret)
		if err != nil {
			return nil, err
		}
		r.Secrets[i].parsed = parsed
	}
	return &r, nil
}

// restore returns the subscription of a stored record. err is the error of reading it.
func (s *Sender) restore(stored Record, err error) (*subscription, error) {
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(stored.Data)
	if err != nil {
		return nil, err
	}
	sub := s.openSubscription(stored.ID, r)
	id, err := deriveID(sub.subject(), r.URL)
	if err == nil && id != stored.ID {
		err = fmt.Errorf("the record belongs to the subscription %s", id)
	}
	if err != nil {
		return nil, err
	}
	return sub, nil
}
