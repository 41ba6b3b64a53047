package trustedproxy_test

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/trustedproxy"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// Only the proxy names a person: by its address, its secret or both. Every other request with one of the
// headers is an error, so that nobody ignores a forged header.
func TestOnlyTheProxyNamesAPerson(t *testing.T) {
	const secret = "s3cr3t-of-the-proxy"
	forged, unclear := trustedproxy.ErrNotProxy, trustedproxy.ErrNoPerson
	peers := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::1/128")}
	byPeer := &trustedproxy.Proxy{User: "X-User", Groups: "X-Groups", SecretHeader: "X-Secret", Peers: peers}
	bySecret := &trustedproxy.Proxy{User: "X-User", Groups: "X-Groups", SecretHeader: "X-Secret", Secret: secret}
	byBoth := &trustedproxy.Proxy{User: "X-User", SecretHeader: "X-Secret", Secret: secret, Peers: peers}
	withoutGroups := &trustedproxy.Proxy{User: "X-User", SecretHeader: "X-Secret", Peers: peers}
	const proxy, other = "10.1.0.5:4711", "10.1.1.5:4711"
	ann := http.Header{"X-User": {"ann"}}
	with := func(more ...string) http.Header {
		h := ann.Clone()
		for pair := range slices.Chunk(more, 2) {
			h.Add(pair[0], pair[1])
		}
		return h
	}
	for name, c := range map[string]struct {
		proxy  *trustedproxy.Proxy
		remote string
		header http.Header
		want   string // the person with groups, "" for none
		err    error
	}{
		"peer":                            {byPeer, proxy, ann, "ann", nil},
		"IPv6 peer":                       {byPeer, "[fd00::1]:1", ann, "ann", nil},
		"peer as a mapped address":        {byPeer, "[::ffff:10.1.0.5]:1", ann, "ann", nil},
		"other IPv6 address":              {byPeer, "[fd00::2]:1", ann, "", forged},
		"other address":                   {byPeer, other, ann, "", forged},
		"other address, groups only":      {byPeer, other, http.Header{"X-Groups": {"g"}}, "", forged},
		"other address, no header":        {byPeer, other, http.Header{}, "", nil},
		"loopback":                        {byPeer, "127.0.0.1:1", ann, "", forged},
		"no address":                      {byPeer, "", ann, "", forged},
		"address in a header":             {byPeer, other, with("X-Forwarded-For", "10.1.0.5"), "", forged},
		"peer, no header":                 {byPeer, proxy, http.Header{}, "", nil},
		"peer, a secret that is not used": {byPeer, other, http.Header{"X-Secret": {"x"}}, "", nil},
		"peer, groups": {byPeer, proxy, with("X-Groups", "staff, platform,,"+strings.Repeat("x", 257)),
			"ann staff platform", nil},
		"peer, groups only":      {byPeer, proxy, http.Header{"X-Groups": {"g"}}, "", unclear},
		"peer, two people":       {byPeer, proxy, with("X-User", "eve"), "", unclear},
		"peer, groups twice":     {byPeer, proxy, with("X-Groups", "a", "X-Groups", "b"), "", unclear},
		"peer, empty name":       {byPeer, proxy, http.Header{"X-User": {""}}, "", unclear},
		"peer, spaces":           {byPeer, proxy, http.Header{"X-User": {" ann"}}, "", unclear},
		"peer, control":          {byPeer, proxy, http.Header{"X-User": {"a\tb"}}, "", unclear},
		"peer, invisible":        {byPeer, proxy, http.Header{"X-User": {"ann\u200b"}}, "", unclear},
		"peer, not UTF-8":        {byPeer, proxy, http.Header{"X-User": {"\xff"}}, "", unclear},
		"peer, long":             {byPeer, proxy, http.Header{"X-User": {strings.Repeat("a", 257)}}, "", unclear},
		"groups are not used":    {withoutGroups, proxy, with("X-Groups", "platform"), "ann", nil},
		"secret":                 {bySecret, other, with("X-Secret", secret), "ann", nil},
		"no secret":              {bySecret, proxy, ann, "", forged},
		"wrong secret":           {bySecret, proxy, with("X-Secret", secret+"x"), "", forged},
		"empty secret":           {bySecret, proxy, with("X-Secret", ""), "", forged},
		"two secrets":            {bySecret, proxy, with("X-Secret", "x", "X-Secret", secret), "", forged},
		"wrong secret, no user":  {bySecret, proxy, http.Header{"X-Secret": {"x"}}, "", forged},
		"secret, no user":        {bySecret, proxy, http.Header{"X-Secret": {secret}}, "", unclear},
		"peer and secret":        {byBoth, proxy, with("X-Secret", secret), "ann", nil},
		"peer without a secret":  {byBoth, proxy, ann, "", forged},
		"secret, other address":  {byBoth, other, with("X-Secret", secret), "", forged},
		"secret, no header user": {byBoth, other, http.Header{}, "", nil},
	} {
		got, err := c.proxy.Person(&http.Request{RemoteAddr: c.remote, Header: c.header})
		said := ""
		if got != nil {
			said = strings.Join(append([]string{got.Name}, got.Groups...), " ")
		}
		if said != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", name, said, err, c.want, c.err)
		}
	}
}
