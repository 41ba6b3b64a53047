package patchbay_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A density is a goal for the frequency of words in the comments of each package, per 1,000 words. Six
// Go projects were measured the same way: quic-go, connect, go-sdk, caddy, the GitHub command and
// coder/websocket.
type density struct {
	words   []string
	theSix  string
	limit   float64
	isFloor bool // the comments must contain at least, not at most, so many
}

// densities find comments in which pronouns and weak verbs stand where a noun or a precise verb would
// be clearer. The figures are a symptom: a comment is good if a stranger understands it alone.
var densities = []density{
	{[]string{"one", "ones"}, "1.1-2.6", 4, false},
	{[]string{"those"}, "0-0.6", 1, false},
	{[]string{"has", "have"}, "2.6-5.0", 7, false},
	{[]string{"what"}, "0-0.5", 1.5, false},
	{[]string{"nothing", "none"}, "0-0.8", 1.5, false},
	{[]string{"contains", "contain", "holds", "hold", "specifies", "specify", "represents", "represent"}, "1.5-6.9", 1.5, true},
	{[]string{"must", "should"}, "2.4-5.6", 2, true},
}

// rewritten lists the packages whose comments meet the goals. The comments of the other packages are
// being rewritten, and only printed: add a package here as soon as it meets the goals.
var rewritten = strings.Fields(`
	ext/apps
	ext/icons
	ext/skills
	ext/tasks
	ext/tasks/storetest
	gateway
	gateway/audit
	gateway/celpolicy
	gateway/cmd/patchbay
	gateway/cmd/patchbay/internal/argument
	gateway/cmd/patchbay/internal/build
	gateway/cmd/patchbay/internal/cmd/auth
	gateway/cmd/patchbay/internal/cmd/bench
	gateway/cmd/patchbay/internal/cmd/call
	gateway/cmd/patchbay/internal/cmd/completion
	gateway/cmd/patchbay/internal/cmd/gateway
	gateway/cmd/patchbay/internal/cmd/gateway/approvals
	gateway/cmd/patchbay/internal/cmd/gateway/audit
	gateway/cmd/patchbay/internal/cmd/gateway/config
	gateway/cmd/patchbay/internal/cmd/gateway/install
	gateway/cmd/patchbay/internal/cmd/gateway/keys
	gateway/cmd/patchbay/internal/cmd/gateway/login
	gateway/cmd/patchbay/internal/cmd/gateway/pins
	gateway/cmd/patchbay/internal/cmd/gateway/policy
	gateway/cmd/patchbay/internal/cmd/gateway/run
	gateway/cmd/patchbay/internal/cmd/gateway/status
	gateway/cmd/patchbay/internal/cmd/lint
	gateway/cmd/patchbay/internal/cmd/list
	gateway/cmd/patchbay/internal/cmd/listen
	gateway/cmd/patchbay/internal/cmd/man
	gateway/cmd/patchbay/internal/cmd/probe
	gateway/cmd/patchbay/internal/cmd/read
	gateway/cmd/patchbay/internal/cmd/record
	gateway/cmd/patchbay/internal/cmd/root
	gateway/cmd/patchbay/internal/cmd/rpc
	gateway/cmd/patchbay/internal/cmd/serve
	gateway/cmd/patchbay/internal/cmd/servers
	gateway/cmd/patchbay/internal/cmd/shell
	gateway/cmd/patchbay/internal/cmd/skills
	gateway/cmd/patchbay/internal/cmd/task
	gateway/cmd/patchbay/internal/cmd/trust
	gateway/cmd/patchbay/internal/cmdutil
	gateway/cmd/patchbay/internal/configedit
	gateway/cmd/patchbay/internal/configs
	gateway/cmd/patchbay/internal/connect
	gateway/cmd/patchbay/internal/content
	gateway/cmd/patchbay/internal/demo
	gateway/cmd/patchbay/internal/exit
	gateway/cmd/patchbay/internal/flags
	gateway/cmd/patchbay/internal/gatewayclient
	gateway/cmd/patchbay/internal/hosting
	gateway/cmd/patchbay/internal/lint
	gateway/cmd/patchbay/internal/login
	gateway/cmd/patchbay/internal/network
	gateway/cmd/patchbay/internal/observe
	gateway/cmd/patchbay/internal/question
	gateway/cmd/patchbay/internal/recording
	gateway/cmd/patchbay/internal/secrets
	gateway/cmd/patchbay/internal/target
	gateway/cmd/patchbay/internal/telemetry
	gateway/cmd/patchbay/internal/telemetry/otlptest
	gateway/cmd/patchbay/internal/term
	gateway/cmd/patchbay/internal/userdir
	gateway/cmd/patchbay/internal/vault
	gateway/internal/filelock
	gateway/internal/freeport
	gateway/internal/jsonc
	gateway/internal/limitedlog
	gateway/internal/minheap
	gateway/internal/netx
	gateway/internal/osuser
	gateway/internal/private
	gateway/internal/rawjson
	gateway/internal/secrettext
	gateway/internal/spell
	host/approval
	host/config
	host/event
	host/hosterr
	host/internal/approve
	host/internal/authorize
	host/internal/call
	host/internal/catalogue
	host/internal/connection
	host/internal/limits
	host/internal/listing
	host/internal/login
	host/internal/observe
	host/internal/pinrecord
	host/internal/pins
	host/internal/proclimit
	host/internal/result
	host/internal/round
	host/internal/routes
	host/internal/server
	host/internal/skills
	host/internal/task
	host/internal/upstream
	host/operator
	host/pin
	host/policy
	host/state
	internal/browser
	internal/childproc
	internal/dpop
	internal/fold
	internal/forward
	internal/freeport
	internal/jsonscan
	internal/jwskey
	internal/legacy
	internal/limit
	internal/limitedlog
	internal/linestream
	internal/lru
	internal/netx
	internal/oauthfetch
	internal/oauthtest
	internal/oauthwire
	internal/peer
	internal/readbuf
	internal/readerpool
	internal/schema
	internal/seal
	internal/secrettext
	internal/singleflight
	internal/sse
	internal/tools/house
	internal/wire
	jsonrpc
	jsonschema
	mcp
	mcp/driver
	mcp/driver/command
	mcp/middleware
	mcphttp
	mcptest
	mcptest/internal/specschema
	mcptest/schemas
	mcptest/testhome
	oauth
	oauth/authserver
	oauth/authserver/storetest
	oauth/oauthclient
	oauth/oidcclient
	otelmcp
	stores/bolt
	uritemplate
	visible
`)

// commentWords counts the words in the comments of a package.
type commentWords struct {
	total int
	count map[string]int
}

var (
	wordPattern = regexp.MustCompile(`[A-Za-z]+(['-][A-Za-z]+)*`)
	directive   = regexp.MustCompile(`^//(go:|nolint|line |export )`)
)

func (c *commentWords) add(group *ast.CommentGroup) {
	for _, comment := range group.List {
		if directive.MatchString(comment.Text) {
			continue
		}
		for _, w := range wordPattern.FindAllString(comment.Text, -1) {
			c.total++
			c.count[strings.ToLower(w)]++
		}
	}
}

// of returns how many of the words occur.
func (c *commentWords) of(words []string) int {
	total := 0
	for _, w := range words {
		total += c.count[w]
	}
	return total
}

// meets reports whether a package of that many words meets a goal. The goal is rounded in favor of the
// package, so a package of 200 words may contain a word once, and need not contain any.
func (d density) meets(count, words int) bool {
	goal := d.limit * float64(words) / 1000
	if d.isFloor {
		return count >= int(math.Floor(goal))
	}
	return count <= int(math.Ceil(goal))
}

func (d density) String() string {
	sign := "≤"
	if d.isFloor {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s %v", d.words[0], sign, d.limit)
}

// TestCommentDensity prints the densities of every package with -v.
func TestCommentDensity(t *testing.T) {
	packages := map[string]*commentWords{}
	sources(t, func(name string, file *ast.File, _ *token.FileSet, _ []byte) {
		dir := path.Dir(name)
		if strings.HasPrefix(dir, "examples") {
			return
		}
		if packages[dir] == nil {
			packages[dir] = &commentWords{count: map[string]int{}}
		}
		for _, group := range file.Comments {
			packages[dir].add(group)
		}
	})
	var table strings.Builder
	fmt.Fprintf(&table, "%-52s%8s", "per 1,000 words of comments", "words")
	for _, d := range densities {
		fmt.Fprintf(&table, "%16s", d)
	}
	fmt.Fprintf(&table, "\n%-60s", "the six models")
	for _, d := range densities {
		fmt.Fprintf(&table, "%16s", d.theSix)
	}
	bySize := slices.SortedFunc(maps.Keys(packages), func(a, b string) int {
		return cmp.Or(cmp.Compare(packages[b].total, packages[a].total), strings.Compare(a, b))
	})
	for _, dir := range bySize {
		table.WriteString(packageDensities(t, dir, packages[dir]))
	}
	t.Log("\n" + table.String())
}

// packageDensities returns the row of a package. Figures that miss a goal are marked.
func packageDensities(t *testing.T, dir string, c *commentWords) string {
	t.Helper()
	row := fmt.Sprintf("\n%-52s%8d", dir, c.total)
	done, good := slices.Contains(rewritten, dir), true
	for _, d := range densities {
		count := c.of(d.words)
		figure := fmt.Sprintf("%.1f", 1000*float64(count)/float64(max(1, c.total)))
		if !d.meets(count, c.total) {
			good = false
			figure += "!"
			if done {
				t.Errorf("the comments of %s contain %s %d times in %d words, want %s per 1,000: name the thing, "+
					"or use the verb that says what happens", dir, strings.Join(d.words, ", "), count, c.total, d)
			}
		}
		row += fmt.Sprintf("%16s", figure)
	}
	if good && !done {
		row += "  meets the goals: add it to rewritten"
	}
	return row
}
