package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

func keyRoutes() []*adminRoute {
	return []*adminRoute{
		getRoute("/keys", "Keys of principals, by name, without their secrets", withKeys(listKeys)),
		postRoute("/keys", "", "Create a key of a principal, and return its secret once", withKeys(newKey)),
		postRoute("/keys/{name}", "revoke", "Revoke a key: its requests end", withKeys(revokeKey)),
	}
}

// A keyList contains all keys.
type keyList struct {
	Keys []Key `json:"keys"`
}

// A createdKey is the only response that contains the secret of a key.
type createdKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret" jsonschema:"for the header Authorization: Bearer; no other response contains it"`
}

// withKeys returns a function of a route for a gateway with keys.
func withKeys[In, Out any](
	serve func(r *adminRequest, s *KeyStore, in *In) (*Out, error),
) func(r *adminRequest, in *In) (*Out, error) {
	return func(r *adminRequest, in *In) (*Out, error) {
		if s := r.admin.gateway.opts.KeyStore; s != nil {
			return serve(r, s, in)
		}
		return nil, unsupported("keys of principals")
	}
}

func listKeys(r *adminRequest, s *KeyStore, _ *noQuery) (*keyList, error) {
	all, err := s.List(r.Context())
	return &keyList{append([]Key{}, all...)}, err
}

func newKey(r *adminRequest, s *KeyStore, k *Key) (*createdKey, error) {
	r.detail = map[string]any{"key": k}
	err := cmp.Or(k.check(time.Now()), r.admin.gateway.check(Route{Profile: k.Profile}))
	for _, r.name = range k.Servers {
		_, unknown := r.upstream()
		err = cmp.Or(err, unknown)
	}
	if err != nil {
		return nil, invalidParameter("%s", strings.TrimPrefix(err.Error(), "gateway: "))
	}
	if err := r.checkGrant(s, k); err != nil {
		return nil, err
	}
	secret, err := s.Create(r.Context(), *k)
	return &createdKey{k.Name, secret}, err
}

// checkGrant refuses a key with which a person of a console would open the console for others or as another
// person, or reach what the person may not use. Only the user of the gateway decides who uses the console.
func (r *adminRequest) checkGrant(s *KeyStore, k *Key) error {
	p, subject := r.principal(), cmp.Or(k.Subject, k.Name)
	if p == nil {
		return nil
	}
	own, err := r.admin.gateway.grantOf(p)
	if err == nil && !own.contains(k.grant()) {
		return problemf(http.StatusForbidden, "wider_key", "the key would grant more than your own access: select "+
			"the profile, servers and kinds of requests that you may use")
	}
	all, unread := s.List(r.Context())
	isOwn := p.Issuer == KeyIssuer && p.Subject == subject
	if k.Console != "" || !isOwn && slices.ContainsFunc(all, func(o Key) bool {
		return o.Console != "" && o.Subject == subject
	}) {
		return problemf(http.StatusForbidden, "console_key", "the key of %q would open the console, or belong to "+
			"another person who uses the console: create the key on the machine of the gateway, such as with "+
			"\"patchbay gateway keys new %s --console operator\"", subject, k.Name)
	}
	return cmp.Or(err, unread)
}

func revokeKey(r *adminRequest, s *KeyStore, _ *noBody) (*revoked, error) {
	if p := r.principal(); p != nil {
		all, err := s.List(r.Context())
		n := slices.IndexFunc(all, func(k Key) bool { return k.Name == r.name })
		isOwn := n >= 0 && p.Issuer == KeyIssuer && p.Subject == all[n].Subject
		if err != nil {
			return nil, err
		}
		if n >= 0 && !isOwn && r.checkGrant(s, &all[n]) != nil {
			return nil, problemf(http.StatusForbidden, "wider_key", "the key %q grants more than your own access, or "+
				"its person uses the console: revoke the key on the machine of the gateway, with "+
				"\"patchbay gateway keys revoke %s\"", r.name, r.name)
		}
	}
	_, err := s.Revoke(r.Context(), r.name)
	return &revoked{r.name}, err
}
