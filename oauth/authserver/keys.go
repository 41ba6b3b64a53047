package authserver

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"

	"github.com/patchbay-mcp/patchbay/internal/seal"
)

const (
	// keyOverlap is how long a new key is published before it signs, and an old one after: whoever keeps the key set for
	// an hour, and every token of the old key, passes through the change unharmed.
	keyOverlap = 2 * time.Hour
	// keyReload is how long keys are used before the store is asked whether another process has changed them.
	keyReload = time.Minute
	// keyReloadTime bounds one such question, and keyRetry is how long the store is left alone after one that failed.
	keyReloadTime = 5 * time.Second
	keyRetry      = 5 * time.Second
	// keyStale is how old keys may be while somebody asks for newer ones. It is less than keyOverlap: whatever signs by now
	// is among them.
	keyStale = keyOverlap / 2
	// minRSA is the least size of an RSA key, in bits.
	minRSA = 2048

	kindSealKey = "seal-key"
	kindKeys    = "signing-keys"
	onlyRecord  = "1" // the key of a kind that has a single record
)

// openKeyRing returns the sealer of the operator's keys, or of one that is kept in the store.
func (s *Server) openKeyRing(ctx context.Context) (*seal.KeyRing, error) {
	if len(s.o.SealKeys) > 0 {
		return newKeyRing(s.o.SealKeys)
	}
	var keys []SealKey
	err := s.store.Update(ctx, kindSealKey, onlyRecord, func(old []byte) ([]byte, time.Time, error) {
		if old != nil {
			return old, time.Time{}, json.Unmarshal(old, &keys)
		}
		keys = []SealKey{NewSealKey()}
		value, err := json.Marshal(keys)
		return value, time.Time{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("authserver: the key of the store: %w", err)
	}
	return newKeyRing(keys)
}

// A keyRecord is one of the server's own keys, as it is stored.
type keyRecord struct {
	ID      string    `json:"id"`
	Sealed  []byte    `json:"sealed"` // PKCS #8
	Created time.Time `json:"created"`
	From    time.Time `json:"from"` // when it begins to sign
}

// A keyring holds the keys that sign access tokens.
type keyring struct {
	s     *Server
	fixed bool // the operator's

	mu      sync.Mutex    // guards the fields below; never held while the store is used
	signers []timedSigner // in the order of their use; never empty
	loaded  time.Time
	due     time.Time     // when the store is asked again
	loading chan struct{} // closed when the one who asks it is done; nil while nobody does
}

// A timedSigner is a key that begins to sign at a time.
type timedSigner struct {
	from   time.Time
	public jose.JSONWebKey
	signer jose.Signer
}

func newKeyring(ctx context.Context, s *Server) (*keyring, error) {
	k := &keyring{s: s, fixed: len(s.o.SigningKeys) > 0}
	if !k.fixed {
		signers, err := k.load(ctx)
		if err != nil {
			return nil, fmt.Errorf("signing keys: %w", err)
		}
		k.set(signers)
		return k, nil
	}
	for i, key := range s.o.SigningKeys {
		t, err := newSigner(key)
		if err != nil {
			return nil, fmt.Errorf("authserver: Options.SigningKeys: key %d: %w", i+1, err)
		}
		k.signers = append([]timedSigner{t}, k.signers...) // the last one signs
	}
	return k, nil
}

// newSigner makes a signer of access tokens.
//
// Spec: RFC 9068, section 2.1.
func newSigner(key crypto.Signer) (timedSigner, error) {
	alg, err := algorithmOf(key.Public())
	if err != nil {
		return timedSigner{}, err
	}
	public := jose.JSONWebKey{Key: key.Public(), Algorithm: string(alg), Use: "sig"}
	print, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return timedSigner{}, err
	}
	public.KeyID = base64.RawURLEncoding.EncodeToString(print)
	opts := (&jose.SignerOptions{}).WithType("at+jwt").WithHeader("kid", public.KeyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: cryptosigner.Opaque(key)}, opts)
	return timedSigner{public: public, signer: signer}, err
}

func algorithmOf(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	case ed25519.PublicKey:
		return jose.EdDSA, nil
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSA {
			return "", fmt.Errorf("an RSA key has %d bits, want at least %d", k.N.BitLen(), minRSA)
		}
		return jose.RS256, nil
	}
	return "", errors.New("the key is of no kind that is known here")
}

// current returns the key that signs now.
func (k *keyring) current(ctx context.Context) timedSigner {
	all := k.all(ctx)
	now, best := time.Now(), all[0]
	for _, t := range all {
		if !t.from.After(now) {
			best = t
		}
	}
	return best
}

// all returns the keys that are published. When they are due one request asks the store, for its own time alone, while the
// others go on with the keys that there are, unless those are stale. A store that does not answer changes no key.
func (k *keyring) all(ctx context.Context) []timedSigner {
	k.mu.Lock()
	now := time.Now()
	signers, asks := k.signers, k.loading == nil
	if k.fixed || now.Before(k.due) || !asks && now.Sub(k.loaded) < keyStale {
		k.mu.Unlock()
		return signers
	}
	if asks {
		k.loading = make(chan struct{})
		go k.reload(context.WithoutCancel(ctx)) // ends after keyReloadTime, whoever waits for it
	}
	done := k.loading
	k.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.signers
}

// reload asks the store whether another process has changed the keys, and changes them when their time has come.
func (k *keyring) reload(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keyReloadTime)
	defer cancel()
	signers, err := k.load(ctx)
	if err == nil {
		k.set(signers)
	} else {
		k.s.log.ErrorContext(ctx, "authorization server: the signing keys cannot be read again", "error", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.due = time.Now().Add(keyRetry)
	}
	close(k.loading)
	k.loading = nil
}

func (k *keyring) set(signers []timedSigner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.signers, k.loaded, k.due = signers, now, now.Add(keyReload)
}

func (k *keyring) load(ctx context.Context) ([]timedSigner, error) {
	value, err := k.s.store.Get(ctx, kindKeys, onlyRecord)
	if err != nil {
		return nil, err
	}
	records, due, err := k.turn(value, time.Now())
	if err != nil {
		return nil, err
	}
	if due { // only one process makes the key
		err = k.s.store.Update(ctx, kindKeys, onlyRecord, func(old []byte) ([]byte, time.Time, error) {
			var err error
			if records, _, err = k.turn(old, time.Now()); err != nil {
				return nil, time.Time{}, err
			}
			value, err := json.Marshal(records)
			return value, time.Time{}, err
		})
		if err != nil {
			return nil, err
		}
	}
	var signers []timedSigner
	for _, r := range records {
		t, err := k.open(r)
		if err != nil {
			return nil, err
		}
		signers = append(signers, t)
	}
	return signers, nil
}

// turn returns the keys as they should be now, and whether that differs from what is stored.
func (k *keyring) turn(value []byte, now time.Time) (records []keyRecord, due bool, err error) {
	if value != nil {
		if err := json.Unmarshal(value, &records); err != nil {
			return nil, false, err
		}
	}
	if records, due, err = k.reseal(records); err != nil {
		return nil, false, err
	}
	for len(records) > 1 && now.After(records[1].From.Add(keyOverlap)) {
		records, due = records[1:], true // nothing that it has signed is valid any more
	}
	n := len(records)
	if n > 0 && now.Before(records[n-1].Created.Add(k.s.o.Lifetimes.Key-keyOverlap)) {
		return records, due, nil
	}
	from := now
	if n > 0 {
		from = now.Add(keyOverlap)
	}
	made, err := k.make(now, from)
	return append(records, made), true, err
}

// reseal returns the keys that can be opened, sealed with the first of the seal keys, and whether that changes anything. The
// others are dropped if there are any left: what they have signed is worth nothing then. If there are none, the seal keys
// are more likely the wrong ones than lost.
func (k *keyring) reseal(records []keyRecord) (kept []keyRecord, changed bool, err error) {
	var unsealed error
	for _, r := range records {
		der, old, err := openSealed(k.s.seals, r.Sealed, kindKeys, r.ID)
		if errors.Is(err, errUnsealed) {
			unsealed = errors.Join(unsealed, fmt.Errorf("key %.32q: %w", r.ID, err))
			continue
		}
		if err == nil && old {
			changed = true
			r.Sealed = k.s.seals.Seal(der, kindKeys, r.ID)
		}
		if err != nil {
			return nil, false, err
		}
		kept = append(kept, r)
	}
	switch {
	case unsealed == nil:
		return kept, changed, nil
	case len(kept) == 0:
		return nil, false, fmt.Errorf("none in the store can be opened: put their seal key back into Options.SealKeys, or, if it is "+
			"gone for good, remove them by Store.Take(ctx, %q, %q), which ends all access tokens: %w", kindKeys, onlyRecord, unsealed)
	}
	k.s.log.Error("authorization server: signing keys that cannot be opened are dropped", "error", unsealed)
	return kept, true, nil
}

func (k *keyring) make(now, from time.Time) (keyRecord, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyRecord{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyRecord{}, err
	}
	id := randomID()
	return keyRecord{ID: id, Sealed: k.s.seals.Seal(der, kindKeys, id), Created: now, From: from}, nil
}

func (k *keyring) open(r keyRecord) (timedSigner, error) {
	der, _, err := openSealed(k.s.seals, r.Sealed, kindKeys, r.ID)
	if err != nil {
		return timedSigner{}, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return timedSigner{}, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return timedSigner{}, errors.New("a stored key cannot sign")
	}
	t, err := newSigner(signer)
	t.from = r.From
	return t, err
}

// serveKeys publishes the keys.
//
// Spec: RFC 7517, section 5.
func (s *Server) serveKeys(w http.ResponseWriter, r *http.Request) {
	var set jose.JSONWebKeySet
	for _, t := range s.keys.all(r.Context()) {
		set.Keys = append(set.Keys, t.public)
	}
	cacheable(w.Header())
	writeJSON(w, http.StatusOK, set)
}

// cacheable lets a document that is the same for everybody be kept, for less time than keys overlap.
func cacheable(h http.Header) {
	h.Set("Cache-Control", "public, max-age=300")
	h.Del("Pragma")
}
