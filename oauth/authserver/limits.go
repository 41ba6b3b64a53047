package authserver

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

const (
	// pagesPerLogin is the minimum number of pages that a login requests.
	pagesPerLogin = 4
	// maxStrict is the maximum Count of a strict limiter, which keeps the times of that many
	// requests per key: 24 KB.
	maxStrict     = 1000
	maxRetryAfter = time.Hour
)

// A Rate is a limit for a token bucket: a burst of Count, refilled evenly by Count in each Per.
// After a pause, one Per can therefore see almost twice Count. The zero value means the default.
type Rate struct {
	Count int
	Per   time.Duration
}

func (r Rate) orDefault(count int, per time.Duration) Rate {
	if r.Count <= 0 || r.Per <= 0 {
		return Rate{count, per}
	}
	return r
}

// LimitOptions are the rate limits of a [Server]. The zero value has the defaults. An IPv6 address
// counts together with its /64 network. The /56 network has four times the rate of one address, and
// the /48 network sixteen times.
type LimitOptions struct {
	// TrustedProxies are the addresses of reverse proxies whose X-Forwarded-For header is used.
	// Default: none. Behind a proxy that is not listed all clients share one address, and one rate.
	TrustedProxies []netip.Prefix
	// Pages limits the requests of browsers for authorization, consent and login, by address. New
	// logins have a quarter of the rate, after a burst of Count. Default: 60 per minute.
	Pages Rate
	// Passwords limits failed password logins, by address. There are two more limits: 5 in 10
	// minutes by user name and address, and 100 per hour by user name. If an attacker exhausts the
	// last one, the user can log in only from an address of an earlier login, of which the last
	// 10,000 are in memory. Default: 20 in 10 minutes.
	Passwords Rate
	// Tokens limits the token and the revocation endpoint, by address. Default: 300 per minute.
	Tokens Rate
	// Clients limits the same endpoints by client, if it authenticates. Default: 6,000 per minute.
	Clients Rate
	// Introspections limits the introspection endpoint, which resource servers call, by address.
	// Default: 6,000 per minute.
	Introspections Rate
	// Registrations limits client registrations, by address. Up to a Count of 1,000 it is strict:
	// no span of Per sees more than Count. Default: 20 per hour.
	Registrations Rate
	// Metadata limits requests for metadata and keys, by address. Default: 300 per minute.
	Metadata Rate
	// Fetches limits the fetches of Client ID Metadata Documents and their keys, by the host that
	// serves them. Refreshing a valid document is not limited. There is one more limit: 30 in 10
	// minutes by the address of the request, or its IPv6 /48 network. Default: 600 in 10 minutes.
	Fetches Rate
}

// A limitKind names a limiter.
type limitKind int

const (
	limitPages            limitKind = iota
	limitLogins                     // new logins
	limitPasswords                  // by address
	limitUserAddress                // passwords by user and address
	limitUser                       // passwords by user
	limitUserKnownAddress           // passwords by user and an address of an earlier login
	limitTokens
	limitClients
	limitIntrospections
	limitRegistrations
	limitMetadata
	limitFetchHost   // fetches by host
	limitFetchClient // fetches by address
	limitKinds
)

type limits struct {
	proxies  []netip.Prefix
	limiters [limitKinds]rateLimiter
}

func newLimits(o *LimitOptions) *limits {
	pages := o.Pages.orDefault(60, time.Minute)
	l := &limits{proxies: o.TrustedProxies}
	for kind, rate := range [limitKinds]Rate{
		limitPages:            pages,
		limitLogins:           {pages.Count, pagesPerLogin * pages.Per},
		limitPasswords:        o.Passwords.orDefault(20, 10*time.Minute),
		limitUserAddress:      {5, 10 * time.Minute},
		limitUser:             {100, time.Hour},
		limitUserKnownAddress: {100, time.Hour},
		limitTokens:           o.Tokens.orDefault(300, time.Minute),
		limitClients:          o.Clients.orDefault(6000, time.Minute),
		limitIntrospections:   o.Introspections.orDefault(6000, time.Minute),
		limitRegistrations:    o.Registrations.orDefault(20, time.Hour),
		limitMetadata:         o.Metadata.orDefault(300, time.Minute),
		limitFetchHost:        o.Fetches.orDefault(600, 10*time.Minute),
		limitFetchClient:      {30, 10 * time.Minute},
	} {
		l.limiters[kind].rate = rate
		l.limiters[kind].buckets.max = maxLimited
	}
	registrations := &l.limiters[limitRegistrations]
	registrations.isStrict = registrations.rate.Count <= maxStrict
	return l
}

func (l *limits) cost(kind limitKind, key string) cost { return cost{&l.limiters[kind], key, 1} }

// networks are the prefixes that an IPv6 customer may have, and their rates as multiples of the
// rate of one address.
var networks = [...]struct{ bits, times int }{{siteBits, 1}, {56, 4}, {48, 16}}

// costsByAddress returns the costs of a request for its address and, for IPv6, the networks of the
// address. The suffix is appended to the keys of limits by address and something else.
func (l *limits) costsByAddress(r *http.Request, kind limitKind, suffix string) []cost {
	addr := l.clientAddr(r)
	if !addr.Is6() {
		return []cost{l.cost(kind, addressKey(addr)+suffix)}
	}
	var costs []cost
	for _, n := range networks {
		network, _ := addr.Prefix(n.bits)
		costs = append(costs, cost{&l.limiters[kind], network.String() + suffix, n.times})
	}
	return costs
}

// allowRequest takes one request by address. If there is none left, it sets Retry-After and returns
// false.
func (l *limits) allowRequest(w http.ResponseWriter, r *http.Request, kind limitKind) bool {
	wait, ok := reserveAll(l.costsByAddress(r, kind, ""))
	if !ok {
		setRetryAfter(w, wait)
	}
	return ok
}

func setRetryAfter(w http.ResponseWriter, wait time.Duration) {
	seconds := int64((min(wait, maxRetryAfter) + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
}

type clientKeyKey struct{}

// withClientKey returns a context with the address key of the client that caused a request.
func withClientKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKeyKey{}, key)
}

// clientKey returns the key that fetches are limited by: the address of the client, or its /48
// network. Someone with a /64 may well have the whole /48.
func clientKey(ctx context.Context) string {
	key, _ := ctx.Value(clientKeyKey{}).(string)
	if network, err := netip.ParsePrefix(key); err == nil && network.Bits() > fetchClientBits {
		network, _ = network.Addr().Prefix(fetchClientBits)
		return network.String()
	}
	return key
}
