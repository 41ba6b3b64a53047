package authserver

import (
	"container/list"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxLimited is how many addresses, clients or users are remembered for each limit: the least recent is forgotten,
	// which returns it its full rate again. 10,000 of them take about 3 MiB.
	maxLimited = 10_000
	// maxForwarded is how many addresses of X-Forwarded-For are looked at: no chain of real proxies is longer.
	maxForwarded = 16
	// siteBits is the part of an IPv6 address that one site has: whoever has one address has all of those under it.
	siteBits = 64
	// logInPages is how many pages a login asks for, at least.
	logInPages = 4
	// maxExact is up to which Count of each address the times are kept of: 24 KB.
	maxExact = 1000
	// maxRetryAfter is the longest time that a refusal tells to wait. A shorter one is no promise, a longer one is lost.
	maxRetryAfter = time.Hour
)

// A Rate is how often something may happen: Count times at once, and again as many, evenly, over each Per that passes. So
// a Per that begins with a burst after a rest sees up to twice Count, less one. The zero value stands for the default.
type Rate struct {
	Count int
	Per   time.Duration
}

// networks are the larger parts of an IPv6 address that one customer may have, and how many times the rate of one address
// all those in them have together.
var networks = [...]struct{ bits, times int }{{56, 4}, {48, 16}}

// LimitOptions are how often one address, client or user may ask. The zero value has the defaults. An IPv6 address
// counts together with all that share its first 64 bits; those that share 56 have four times the rate together, and those
// that share 48 sixteen times.
type LimitOptions struct {
	// TrustedProxies are the addresses of reverse proxies whose X-Forwarded-For is believed. Default: none, so that
	// behind a proxy everybody has one address, and one rate.
	TrustedProxies []netip.Prefix
	// Pages is for what a browser asks for: authorization requests, consent, login. Since a login takes four of them, a
	// quarter of the rate is for the beginnings of logins, after a burst of Count. Default: 60 a minute, by address.
	Pages Rate
	// Passwords is for attempts to log in with a password that fail. Default: 20 in 10 minutes, by address. Besides there
	// are 5 in 10 minutes by user name and address, and 100 an hour by user name. The latter can be used up by whoever has
	// many addresses; the user then gets in only from one of the last 10,000 addresses that any user has logged in from
	// since the start.
	Passwords Rate
	// Tokens is for the token and the revocation endpoint. Default: 300 a minute, by address.
	Tokens Rate
	// Clients is for the same, by client that has proved who it is, whatever addresses it has: anybody could use up what a
	// public one has. Default: 6,000 a minute.
	Clients Rate
	// Introspections is for the introspection endpoint, which resource servers ask. Default: 6,000 a minute, by address.
	Introspections Rate
	// Registrations is for new clients. If Count is at most 1,000, no span of Per sees more. Default: 20 an hour,
	// by address.
	Registrations Rate
	// Documents is for metadata and keys. Default: 300 a minute, by address.
	Documents Rate
	// Fetches is for Client ID Metadata Documents, and the keys that they point to, which have to be fetched and were not
	// good before. Default: 600 in 10 minutes, by the host that has them. Besides there are 30 in 10 minutes by the address
	// that asks, for which an IPv6 address counts together with all that share its first 48 bits.
	Fetches Rate
}

// A limited is something that has a rate.
type limited int

const (
	limitPages  limited = iota
	limitLogins         // that begin
	limitPasswords
	limitPasswordsOfUser     // by name and address
	limitPasswordsEverywhere // by name
	limitPasswordsAtHome     // by name and address, where the user has logged in before
	limitTokens
	limitClients
	limitIntrospections
	limitRegistrations
	limitDocuments
	limitFetches // by host
	limitAskers  // for the same, by address
	limitedCount
)

func orRate(r Rate, count int, per time.Duration) Rate {
	if r.Count <= 0 || r.Per <= 0 {
		return Rate{count, per}
	}
	return r
}

// limits are the rates of a server.
type limits struct {
	proxies []netip.Prefix
	tables  [limitedCount]limitTable
	wide    [limitedCount][len(networks)]limitTable
}

func newLimits(opts *LimitOptions) *limits {
	var o LimitOptions
	if opts != nil {
		o = *opts
	}
	l := &limits{proxies: o.TrustedProxies}
	pages := orRate(o.Pages, 60, time.Minute)
	for which, r := range [limitedCount]Rate{
		limitPages:               pages,
		limitLogins:              {pages.Count, logInPages * pages.Per},
		limitPasswords:           orRate(o.Passwords, 20, 10*time.Minute),
		limitPasswordsOfUser:     {5, 10 * time.Minute},
		limitPasswordsEverywhere: {100, time.Hour},
		limitPasswordsAtHome:     {100, time.Hour},
		limitTokens:              orRate(o.Tokens, 300, time.Minute),
		limitClients:             orRate(o.Clients, 6000, time.Minute),
		limitIntrospections:      orRate(o.Introspections, 6000, time.Minute),
		limitRegistrations:       orRate(o.Registrations, 20, time.Hour),
		limitDocuments:           orRate(o.Documents, 300, time.Minute),
		limitFetches:             orRate(o.Fetches, 600, 10*time.Minute),
		limitAskers:              {30, 10 * time.Minute},
	} {
		l.tables[which].rate = r
		for i, n := range networks {
			l.wide[which][i].rate = Rate{n.times * r.Count, r.Per}
		}
	}
	l.tables[limitRegistrations].exact = l.tables[limitRegistrations].rate.Count <= maxExact
	return l
}

// allow takes one of what key has left, or says how long it takes until there is one.
func (l *limits) allow(which limited, key string) (wait time.Duration, ok bool) {
	return l.tables[which].take(key)
}

// A share is what one key has of a rate.
type share struct {
	table *limitTable
	key   string
}

// sharesOf returns what a request counts against: the share of its address, and those of the networks around it. What is
// limited by address and something else names that too.
func (l *limits) sharesOf(r *http.Request, which limited, besides string) []share {
	addr := l.source(r)
	shares := []share{{&l.tables[which], nameOf(addr) + besides}}
	for i, n := range networks {
		if addr.Is6() {
			network, _ := addr.Prefix(n.bits)
			shares = append(shares, share{&l.wide[which][i], network.String() + besides})
		}
	}
	return shares
}

// takeAll takes one of each share, or none and says how long it takes until the one that has none left has one.
func takeAll(shares []share) (wait time.Duration, ok bool) {
	for i, s := range shares {
		if wait, ok := s.table.take(s.key); !ok {
			giveBack(shares[:i])
			return wait, false
		}
	}
	return 0, true
}

// giveBack undoes what takeAll took.
func giveBack(shares []share) {
	for _, s := range shares {
		s.table.giveBack(s.key)
	}
}

// setRetryAfter says in whole seconds, rounded up, when to come again.
func setRetryAfter(w http.ResponseWriter, wait time.Duration) {
	seconds := int64((min(wait, maxRetryAfter) + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
}

// address names who asks.
func (l *limits) address(r *http.Request) string { return nameOf(l.source(r)) }

// nameOf returns the key of an address.
func nameOf(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "unknown"
	case addr.Is6():
		site, _ := addr.Prefix(siteBits)
		return site.String()
	}
	return addr.String()
}

// source returns the address of who asks: the peer of the connection, or whom trusted proxies have it from. Some have none,
// such as the peer of a Unix socket.
func (l *limits) source(r *http.Request) netip.Addr {
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

// forwardedFor walks from the nearest proxy outwards, as far as proxies are trusted: what lies beyond is whatever the
// first stranger wrote.
func (l *limits) forwardedFor(h http.Header, nearest netip.Addr) netip.Addr {
	hops := strings.Split(strings.Join(h.Values("X-Forwarded-For"), ","), ",")
	addr := nearest
	for i := len(hops) - 1; i >= 0 && i >= len(hops)-maxForwarded; i-- {
		hop, err := parseHop(hops[i])
		if err != nil {
			return addr
		}
		addr = hop
		if !l.trusts(addr) {
			return addr
		}
	}
	return addr
}

// parseHop reads an address with or without a port: proxies write either.
func parseHop(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no address: %w", err)
	}
	return addr.Unmap().WithZone(""), nil
}

func (l *limits) trusts(addr netip.Addr) bool {
	for _, p := range l.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// A limitTable has one bucket for each key that asked lately.
type limitTable struct {
	rate Rate
	// exact keeps every span of rate.Per within rate.Count.
	exact bool

	mu      sync.Mutex // guards the fields below
	buckets map[string]*list.Element
	recent  list.List // of *limitBucket, the most recent first
}

type limitBucket struct {
	key  string
	left float64 // at
	at   time.Time

	taken []time.Time // of an exact table, the oldest first; left does not count there
}

func (t *limitTable) take(key string) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucket(key)
	if t.exact {
		return t.takeExact(b)
	}
	if b.left >= 1 {
		b.left--
		return 0, true
	}
	return time.Duration((1 - b.left) * float64(t.rate.Per) / float64(t.rate.Count)), false
}

func (t *limitTable) takeExact(b *limitBucket) (wait time.Duration, ok bool) {
	b.taken = slices.DeleteFunc(b.taken, func(at time.Time) bool { return b.at.Sub(at) >= t.rate.Per })
	if len(b.taken) < t.rate.Count {
		b.taken = append(b.taken, b.at)
		return 0, true
	}
	return t.rate.Per - b.at.Sub(b.taken[0]), false
}

// giveBack undoes take.
func (t *limitTable) giveBack(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucket(key)
	b.left++
	if n := len(b.taken); n > 0 {
		b.taken = b.taken[:n-1]
	}
}

// has reports whether a key is remembered.
func (t *limitTable) has(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.buckets[key]
	return ok
}

// remember makes sure that a key is.
func (t *limitTable) remember(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bucket(key)
}

// bucket returns the bucket of a key with what is in it now.
func (t *limitTable) bucket(key string) *limitBucket {
	now, full := time.Now(), float64(t.rate.Count)
	if e, ok := t.buckets[key]; ok {
		t.recent.MoveToFront(e)
		b := e.Value.(*limitBucket)
		b.left = min(full, b.left+full*float64(now.Sub(b.at))/float64(t.rate.Per))
		b.at = now
		return b
	}
	if t.buckets == nil {
		t.buckets = map[string]*list.Element{}
	}
	if len(t.buckets) >= maxLimited {
		delete(t.buckets, t.recent.Remove(t.recent.Back()).(*limitBucket).key)
	}
	b := &limitBucket{key: key, left: full, at: now}
	t.buckets[key] = t.recent.PushFront(b)
	return b
}
