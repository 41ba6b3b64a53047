package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The header fields of a delivery.
const (
	headerID           = "Webhook-Id"
	headerTimestamp    = "Webhook-Timestamp"
	headerSignature    = "Webhook-Signature"
	headerSubscription = "X-Mcp-Subscription-Id"
)

const (
	secretPrefix = "whsec_"
	// minSecret and maxSecret limit the bytes of a secret, as the specification of events does.
	minSecret, maxSecret = 24, 64

	signaturePrefix = "v1,"
	// maxSignatures limits the signatures of a delivery that are compared. A rotation needs two.
	maxSignatures = 16
	// maxField limits the fields of the header of a delivery, in bytes. Sixteen signatures take 800.
	maxField = 4 << 10
	// maxID limits the identifier of an event, in bytes. Identifiers of upstream systems are shorter.
	maxID = 256
)

// Tolerance is the largest difference between the time of a delivery and the time of the receiver.
// A delivery that was captured can be repeated only within it.
//
// Spec: SEP-3415, Webhook security, Signature scheme.
const Tolerance = 5 * time.Minute

// ErrSignature is wrapped by the error for a delivery that was not signed with an accepted secret,
// or that is too old, or whose header fields are malformed.
var ErrSignature = errors.New("webhook: invalid signature")

// A Secret signs the deliveries of a subscription. The client generates it and sends it to the
// server; the receiver verifies deliveries with it. Secrets can be compared with ==. Formatting a
// Secret does not reveal it.
//
// Spec: SEP-3415, Webhook security, Secret generation.
type Secret struct{ key string }

// NewSecret returns a random secret of 32 bytes.
func NewSecret() Secret {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never returns an error
	return Secret{string(key)}
}

// ParseSecret reads a secret: "whsec_" and the base64 form of 24 to 64 bytes. The error does not
// repeat the text.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok || len(encoded) > base64.StdEncoding.EncodedLen(maxSecret) || strings.ContainsAny(encoded, "\r\n") {
		return Secret{}, errSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, errSecret
	}
	return Secret{string(key)}, nil
}

var errSecret = fmt.Errorf("invalid secret: must be %q and the base64 form of %d to %d bytes", secretPrefix, minSecret,
	maxSecret)

// Reveal returns the text of the secret that [ParseSecret] reads.
func (s Secret) Reveal() string {
	return secretPrefix + base64.StdEncoding.EncodeToString([]byte(s.key))
}

// String returns a placeholder.
func (s Secret) String() string { return secretPrefix + "(hidden)" }

// GoString returns a placeholder.
func (s Secret) GoString() string { return s.String() }

// sum returns the signature of a message, without its encoding.
func (s Secret) sum(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(s.key))
	prefix := make([]byte, 0, len(id)+len(timestamp)+2)
	prefix = append(append(prefix, id...), '.')
	prefix = append(append(prefix, timestamp...), '.')
	mac.Write(prefix)
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign sets the header fields of a message that is sent now: its identifier, its time, and a
// signature for each secret. During a rotation the secrets are the new and the old secret.
//
// Spec: Standard Webhooks, Signature scheme.
func Sign(header http.Header, id string, now time.Time, body []byte, secrets ...Secret) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	var signatures []byte
	for i, s := range secrets {
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		signatures = append(signatures, signaturePrefix...)
		signatures = base64.StdEncoding.AppendEncode(signatures, s.sum(id, timestamp, body))
	}
	header.Set(headerID, id)
	header.Set(headerTimestamp, timestamp)
	header.Set(headerSignature, string(signatures))
}

// Verify returns an error that wraps [ErrSignature] unless a message was signed with any of the
// secrets at a time that differs from now by at most [Tolerance]. body holds the bytes as they were
// received.
func Verify(header http.Header, now time.Time, body []byte, secrets ...Secret) error {
	m, err := parseHeader(header)
	if err == nil {
		err = m.checkTime(now)
	}
	if err == nil && !m.isSigned(body, secrets...) {
		err = fmt.Errorf("%w: no signature matches a secret", ErrSignature)
	}
	return err
}

// A message holds the header fields of a delivery.
type message struct {
	id         string
	timestamp  string
	time       time.Time
	signatures [][]byte // of version 1
}

// parseHeader reads the fields of Standard Webhooks. Signatures of other versions are ignored.
func parseHeader(header http.Header) (m message, err error) {
	var signatures string
	for _, f := range []struct {
		name string
		into *string
	}{{headerID, &m.id}, {headerTimestamp, &m.timestamp}, {headerSignature, &signatures}} {
		values := header[f.name]
		if len(values) != 1 || values[0] == "" || len(values[0]) > maxField {
			return m, fmt.Errorf("%w: must contain a single %s of at most %d bytes", ErrSignature,
				strings.ToLower(f.name), maxField)
		}
		*f.into = values[0]
	}
	if !isID(m.id) {
		return m, fmt.Errorf("%w: webhook-id must be 1 to %d printable ASCII characters", ErrSignature, maxID)
	}
	seconds, err := strconv.ParseInt(m.timestamp, 10, 64)
	if err != nil || seconds < 0 || strconv.FormatInt(seconds, 10) != m.timestamp {
		return m, fmt.Errorf("%w: webhook-timestamp must be the seconds since 1970", ErrSignature)
	}
	m.time = time.Unix(seconds, 0)
	for text := range strings.SplitSeq(signatures, " ") {
		encoded, ok := strings.CutPrefix(text, signaturePrefix)
		if !ok {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && len(sum) == sha256.Size && len(m.signatures) < maxSignatures {
			m.signatures = append(m.signatures, sum)
		}
	}
	return m, nil
}

// isID reports whether an identifier can be sent in a header field as it is.
func isID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

func (m message) checkTime(now time.Time) error {
	if age := now.Sub(m.time); age > Tolerance || age < -Tolerance {
		return fmt.Errorf("%w: webhook-timestamp differs from the time here by more than %v", ErrSignature, Tolerance)
	}
	return nil
}

// isSigned reports whether a signature of the message matches any of the secrets. Signatures are
// compared in constant time.
func (m message) isSigned(body []byte, secrets ...Secret) bool {
	if len(m.signatures) == 0 {
		return false // without reading the body
	}
	for _, s := range secrets {
		sum := s.sum(m.id, m.timestamp, body)
		for _, got := range m.signatures {
			if hmac.Equal(got, sum) {
				return true
			}
		}
	}
	return false
}
