package authserver

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/limit"
)

const (
	pagesPerLogin = 4    // at least
	maxStrict     = 1000 // maximum Count of a strict limiter, which then takes 24 KB per key
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

// LimitOptions are the rate limits of a [Server]. The zero value means the defaults. An IPv6
// address counts together with its /64 network. The /56 network is allowed four times the rate of
// an address, and the /48 network sixteen times.
type LimitOptions struct {
	// TrustedProxies are the addresses of reverse proxies whose X-Forwarded-For header is used.
	// Default: none. Behind a proxy that is not listed all clients share an address, and its rate.
	TrustedProxies []netip.Prefix
	// Pages limits the requests of browsers for authorization, consent and login, by address. New
	// logins are limited to a quarter of the rate, after a burst of Count. Default: 60 per minute.
	Pages Rate
	// Passwords limits failed password logins, by address. There are two more limits: 5 in 10
	// minutes by user name and address, and 100 per hour by user name. If an attacker exhausts the
	// last attempt, the user can log in only from an address of an earlier login, of which the last
	// 10,000 are in memory. Default: 20 in 10 minutes.
	Passwords Rate
	// Tokens limits the token and the revocation endpoint, by address. Requests of clients that
	// authenticate count only for Clients, so that many hosted clients can share an address.
	// Default: 300 per minute.
	Tokens Rate
	// Clients limits the token, revocation and introspection endpoints by client, if it
	// authenticates. Default: 6,000 per minute.
	Clients Rate
	// Introspections limits the introspection endpoint, which resource servers call, by address.
	// Default: 6,000 per minute.
	Introspections Rate
	// Registrations limits client registrations, by address. Up to a Count of 1,000 it is strict:
	// no span of Per sees more than Count. A hosted client registers for all its users from few
	// addresses: further registrations, up to ten times Count, are accepted if their redirect URIs
	// use a single https host, for which there were fewer than ten times Count of them. Default:
	// 20 per hour.
	Registrations Rate
	// Metadata limits requests for metadata and keys, by address. Default: 300 per minute.
	Metadata Rate
	// Fetches limits the fetches of Client ID Metadata Documents and their keys, by the host that
	// serves them. Refreshing a valid document is not limited. There is another limit: 30 in 10
	// minutes by the address of the request, or its IPv6 /48 network. Default: 600 in 10 minutes.
	Fetches Rate
}

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

	// Requests by address that exceed the limit of the endpoint. They are answered with 429 unless
	// the client authenticates, or unless there is a registration left for the redirect host.
	limitExtraTokens
	limitExtraIntrospections
	limitExtraRegistrations
	limitRegistrationHosts
	limitKinds
)

type limits struct {
	proxies  []netip.Prefix
	limiters [limitKinds]rateLimiter
	proxy    proxyCheck
}

// extraTimes is the rate of the requests that exceed a limit by address, as a multiple of that
// rate.
const extraTimes = 10

func (r Rate) extra() Rate { return Rate{extraTimes * r.Count, r.Per} }

func newLimits(o *LimitOptions) *limits {
	pages := o.Pages.orDefault(60, time.Minute)
	tokens, introspections := o.Tokens.orDefault(300, time.Minute), o.Introspections.orDefault(6000, time.Minute)
	newClients := o.Registrations.orDefault(20, time.Hour)
	l := &limits{proxies: o.TrustedProxies}
	for kind, rate := range [limitKinds]Rate{
		limitPages:            pages,
		limitLogins:           {pages.Count, pagesPerLogin * pages.Per},
		limitPasswords:        o.Passwords.orDefault(20, 10*time.Minute),
		limitUserAddress:      {5, 10 * time.Minute},
		limitUser:             {100, time.Hour},
		limitUserKnownAddress: {100, time.Hour},
		limitTokens:           tokens,
		limitClients:          o.Clients.orDefault(6000, time.Minute),
		limitIntrospections:   introspections,
		limitRegistrations:    newClients,
		limitMetadata:         o.Metadata.orDefault(300, time.Minute),
		limitFetchHost:        o.Fetches.orDefault(600, 10*time.Minute),
		limitFetchClient:      {30, 10 * time.Minute},

		limitExtraTokens:         tokens.extra(),
		limitExtraIntrospections: introspections.extra(),
		limitExtraRegistrations:  newClients.extra(),
		limitRegistrationHosts:   newClients.extra(),
	} {
		l.limiters[kind] = rateLimiter{Rate: rate, buckets: limit.NewTable(maxLimited, foldKey)}
	}
	registrations := &l.limiters[limitRegistrations]
	registrations.isStrict = registrations.Count <= maxStrict
	return l
}

func (l *limits) cost(kind limitKind, key string) cost { return cost{&l.limiters[kind], key, 1} }

// networks are the prefixes that an IPv6 customer may use, and their rates as multiples of the
// rate of an address.
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

// allowRequest counts a request by address. If the limit is reached, it sets Retry-After and
// returns false.
func (l *limits) allowRequest(w http.ResponseWriter, r *http.Request, kind limitKind) bool {
	wait, ok := reserveAll(l.costsByAddress(r, kind, ""))
	if !ok {
		setRetryAfter(w, wait)
	}
	return ok
}

// An addressLimit is the outcome of the limit by address of a request.
type addressLimit struct {
	costs      []cost // that were taken
	isExceeded bool
	wait       time.Duration // until a request is available, if the limit is exceeded
}

type addressLimitKey struct{}

func addressLimitOf(ctx context.Context) *addressLimit {
	l, _ := ctx.Value(addressLimitKey{}).(*addressLimit)
	if l == nil {
		l = new(addressLimit)
	}
	return l
}

// limitByAddress counts a request for the limit of its address. If the limit is exceeded and the
// endpoint sets an extra limit, the request continues, and its handler decides. Otherwise ok is
// false.
func (l *limits) limitByAddress(r *http.Request, kind, extra limitKind) (a *addressLimit, ok bool) {
	a = &addressLimit{costs: l.costsByAddress(r, kind, "")}
	a.wait, ok = reserveAll(a.costs)
	if ok || extra == 0 {
		return a, ok
	}
	a.costs, a.isExceeded = nil, true
	_, ok = reserveAll(l.costsByAddress(r, extra, ""))
	return a, ok
}

func (a *addressLimit) refusal() error {
	return &oauthError{status: http.StatusTooManyRequests, code: codeSlowDown, text: "too many requests", wait: a.wait}
}

func setRetryAfter(w http.ResponseWriter, wait time.Duration) {
	seconds := int64((min(wait, maxRetryAfter) + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
}

type clientKeyKey struct{}

func withClientKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKeyKey{}, key)
}

// clientKey returns the key that fetches are limited by: the address of the client, or its /48
// network. Someone with a /64 may well own the whole /48.
func clientKey(ctx context.Context) string {
	key, _ := ctx.Value(clientKeyKey{}).(string)
	if network, err := netip.ParsePrefix(key); err == nil && network.Bits() > fetchClientBits {
		network, _ = network.Addr().Prefix(fetchClientBits)
		return network.String()
	}
	return key
}

const (
	maxForwarded = 16 // addresses of X-Forwarded-For; no real chain of proxies is longer
	siteBits     = 64 // IPv6 prefix of a site, whose addresses are counted together
)

func (l *limits) address(r *http.Request) string { return addressKey(l.clientAddr(r)) }

func addressKey(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "unknown"
	case addr.Is6():
		site, _ := addr.Prefix(siteBits)
		return site.String()
	}
	return addr.String()
}

// clientAddr returns the address that a request comes from: the peer of the connection, or the
// address that trusted proxies forward. It is invalid if the peer is not an IP address, such as the
// peer of a Unix socket.
func (l *limits) clientAddr(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	if l.trusts(addr) {
		addr = l.forwardedFor(r.Header, addr)
	}
	return addr
}

// forwardedFor reads X-Forwarded-For from the nearest proxy outwards, as long as the proxies are
// trusted. Anything before the first untrusted address may be forged.
func (l *limits) forwardedFor(h http.Header, nearest netip.Addr) netip.Addr {
	hops := strings.Split(strings.Join(h.Values("X-Forwarded-For"), ","), ",")
	addr := nearest
	for i := len(hops) - 1; i >= 0 && i >= len(hops)-maxForwarded; i-- {
		hop, err := parseHop(hops[i])
		if err != nil {
			return addr
		}
		if addr = hop; !l.trusts(addr) {
			return addr
		}
	}
	return addr
}

// parseHop parses an address with or without a port: proxies write either.
func parseHop(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return addr.Unmap().WithZone(""), err
}

func (l *limits) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// maxLimited limits the keys of a limiter. 10,000 keys take about 3 MiB. The requests of an evicted
// key count for its network.
const maxLimited = 10_000

// A rateLimiter contains the token buckets of a kind of limit.
type rateLimiter struct {
	Rate
	isStrict bool // no span of Per sees more than Count
	buckets  *limit.Table[string, string]
}

// foldKey returns the key of the network that an evicted key is folded into, if there is one. IPv6
// networks within a /48 count for it in any case.
func foldKey(key string) (network string, ok bool) {
	address, suffix, _ := strings.Cut(key, " ")
	if addr, err := netip.ParseAddr(address); err == nil && addr.Is4() {
		network, _ := addr.Prefix(networkBits4)
		return network.String() + " " + suffix, true
	}
	if network, err := netip.ParsePrefix(address); err == nil && network.Bits() == networkBits6 {
		network, _ = network.Addr().Prefix(32) // the smallest allocation of a provider
		return network.String() + " " + suffix, true
	}
	return "", false
}

// A cost is a request that counts against a key of a limiter, whose rate is a multiple of the
// limiter's rate.
type cost struct {
	limiter *rateLimiter
	key     string
	times   int
}

// reserveAll takes either all costs or no cost. If a cost is not available, it returns the time
// until it will be.
func reserveAll(costs []cost) (wait time.Duration, ok bool) {
	for i, c := range costs {
		if wait, ok := c.reserve(); !ok {
			refund(costs[:i])
			return wait, false
		}
	}
	return 0, true
}

func refund(costs []cost) {
	for _, c := range costs {
		c.limiter.buckets.GiveBack(c.key, c.rate(), 1)
	}
}

func (c cost) reserve() (wait time.Duration, ok bool) {
	wait = c.limiter.buckets.Take(c.key, c.rate(), 1)
	return wait, wait == 0
}

func (c cost) isKnown() bool { return c.limiter.buckets.Contains(c.key) }

func (c cost) remember() { c.limiter.buckets.Add(c.key, c.rate()) }

// rate returns the rate of the key. A multiple of a strict rate is not strict: it would require the
// times of too many requests.
func (c cost) rate() limit.Rate {
	count := c.times * c.limiter.Count
	r := limit.Per(count, c.limiter.Per, count)
	if c.limiter.isStrict && c.times == 1 {
		r.Window = c.limiter.Per
	}
	return r
}
