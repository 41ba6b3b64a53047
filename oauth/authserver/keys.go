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
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

const (
	// keyOverlap is the time for which a new key is published before it signs, and an old key after
	// it signed. It is longer than caches keep the key set, and longer than access tokens are
	// valid.
	keyOverlap = 2 * time.Hour
	keyReload  = time.Minute // another process may have replaced the keys
	// The time limit of a read, and the time until the next read after a failure.
	keyReloadTime = 5 * time.Second
	keyRetry      = 5 * time.Second
	// keyStale is the maximum age of keys that are used while a read is in progress. It is less
	// than keyOverlap, so the keys include the key that signs now.
	keyStale = keyOverlap / 2
	minRSA   = 2048 // bits

	kindSealKey = "seal-key"
	kindKeys    = "signing-keys"
	onlyRecord  = "1" // the key of a kind that has a single record
)

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
		return nil, fmt.Errorf("authserver: load the seal key from the store: %w", err)
	}
	return newKeyRing(keys)
}

type keyRecord struct {
	ID      string    `json:"id"`
	Sealed  []byte    `json:"sealed"` // PKCS #8
	Created time.Time `json:"created"`
	From    time.Time `json:"from"` // the start of signing
}

type signingKeys struct {
	s     *Server
	fixed bool // the keys are Options.SigningKeys

	reloads singleflight.Group[struct{}, []timedSigner]

	mu      sync.Mutex    // guards the fields below; not held during calls of the store
	signers []timedSigner // in the order of their use; not empty
	loaded  time.Time
	due     time.Time // the time of the next read
}

type timedSigner struct {
	from   time.Time
	public jose.JSONWebKey
	signer jose.Signer
}

func newSigningKeys(ctx context.Context, s *Server) (*signingKeys, error) {
	k := &signingKeys{s: s, fixed: len(s.o.SigningKeys) > 0}
	if !k.fixed {
		if _, err := k.reload(ctx); err != nil {
			return nil, fmt.Errorf("signing keys: %w", err)
		}
		return k, nil
	}
	for i, key := range s.o.SigningKeys {
		t, err := newSigner(key)
		if err != nil {
			return nil, fmt.Errorf("authserver: Options.SigningKeys: key %d: %w", i+1, err)
		}
		k.signers = append([]timedSigner{t}, k.signers...) // the last key signs
	}
	return k, nil
}

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
			return "", fmt.Errorf("invalid RSA key of %d bits: must have at least %d", k.N.BitLen(), minRSA)
		}
		return jose.RS256, nil
	}
	return "", errors.New("unsupported key type")
}

func (k *signingKeys) current(ctx context.Context) timedSigner {
	all := k.all(ctx)
	now, best := time.Now(), all[0]
	for _, t := range all {
		if !t.from.After(now) {
			best = t
		}
	}
	return best
}

// all returns the published keys. When they are due to be read again, one goroutine reads them. The
// request that started it waits; other requests use the present keys, unless these are stale. If
// the store does not answer, the keys stay.
func (k *signingKeys) all(ctx context.Context) []timedSigner {
	k.mu.Lock()
	now := time.Now()
	signers, isDue, isStale := k.signers, !k.fixed && !now.Before(k.due), now.Sub(k.loaded) >= keyStale
	k.mu.Unlock()
	if !isDue || !isStale && k.reloads.InProgress(struct{}{}) {
		return signers
	}
	reloaded, err := k.reloads.Do(ctx, struct{}{}, k.reload)
	if err == nil {
		return reloaded
	}
	if ctx.Err() == nil {
		k.s.log.ErrorContext(ctx, "authorization server: reading the signing keys failed", "error", err)
	}
	return signers
}

func (k *signingKeys) reload(ctx context.Context) ([]timedSigner, error) {
	ctx, cancel := context.WithTimeout(ctx, keyReloadTime)
	defer cancel()
	signers, err := k.load(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if err != nil {
		k.due = now.Add(keyRetry)
		return nil, err
	}
	k.signers, k.loaded, k.due = signers, now, now.Add(keyReload)
	return signers, nil
}

func (k *signingKeys) load(ctx context.Context) ([]timedSigner, error) {
	value, err := k.s.store.Get(ctx, kindKeys, onlyRecord)
	if err != nil {
		return nil, err
	}
	records, due, err := k.rotate(value, time.Now())
	if err != nil {
		return nil, err
	}
	if due { // only one process generates the key
		err = k.s.store.Update(ctx, kindKeys, onlyRecord, func(old []byte) ([]byte, time.Time, error) {
			var err error
			if records, _, err = k.rotate(old, time.Now()); err != nil {
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

// rotate returns the present keys, and reports whether they must be stored.
func (k *signingKeys) rotate(value []byte, now time.Time) (records []keyRecord, due bool, err error) {
	if value != nil {
		if err := json.Unmarshal(value, &records); err != nil {
			return nil, false, err
		}
	}
	if records, due, err = k.reseal(records); err != nil {
		return nil, false, err
	}
	for len(records) > 1 && now.After(records[1].From.Add(keyOverlap)) {
		records, due = records[1:], true // all tokens that it signed expired
	}
	n := len(records)
	if n > 0 && now.Before(records[n-1].Created.Add(k.s.o.Lifetimes.Key-keyOverlap)) {
		return records, due, nil
	}
	from := now
	if n > 0 {
		from = now.Add(keyOverlap)
	}
	generated, err := k.generate(now, from)
	return append(records, generated), true, err
}

// reseal returns the keys that can be opened, sealed with the first seal key, and reports whether
// they must be stored. Keys that cannot be opened are dropped, which ends the tokens that they
// signed. If no key can be opened, reseal returns an error: the configured seal keys are then more
// likely wrong than lost.
func (k *signingKeys) reseal(records []keyRecord) (kept []keyRecord, changed bool, err error) {
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
		return nil, false, fmt.Errorf("no signing key in the store can be opened: configure its seal key "+
			"too; if that is lost, remove the signing keys with Store.GetAndDelete(ctx, %q, %q), "+
			"which ends all access tokens: %w", kindKeys, onlyRecord, unsealed)
	}
	k.s.log.Error("authorization server: dropping signing keys that cannot be opened", "error", unsealed)
	return kept, true, nil
}

func (k *signingKeys) generate(now, from time.Time) (keyRecord, error) {
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

func (k *signingKeys) open(r keyRecord) (timedSigner, error) {
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
		return timedSigner{}, errors.New("stored key of a type that cannot sign")
	}
	t, err := newSigner(signer)
	t.from = r.From
	return t, err
}

// Spec: RFC 7517, section 5.
func (s *Server) serveKeys(w http.ResponseWriter, r *http.Request) {
	var set jose.JSONWebKeySet
	for _, t := range s.keys.all(r.Context()) {
		set.Keys = append(set.Keys, t.public)
	}
	cacheable(w.Header())
	writeJSON(w, http.StatusOK, set)
}

// cacheable allows caches to keep a public document for less than keyOverlap.
func cacheable(h http.Header) {
	h.Set("Cache-Control", "public, max-age=300")
	h.Del("Pragma")
}
