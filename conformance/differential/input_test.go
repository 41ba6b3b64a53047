package differential_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// choices generates a request from bytes: each byte makes one choice.
type choices struct{ data []byte }

// next returns a number below n.
func (c *choices) next(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

func pick[T any](c *choices, from []T) T { return from[c.next(len(from))] }

const envelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// request returns a method and params. Most are requests of a client with additional members whose names
// resemble defined names.
func (c *choices) request() (method, params string) {
	method = pick(c, []string{"tools/call", "tools/call", "tools/call", "prompts/get", "resources/read", "completion/complete"})
	if c.next(16) == 15 {
		method = c.variant(method)
	}
	if c.next(8) == 7 { // the remaining bytes are the params
		return method, `{` + envelope + `,` + string(c.data) + `}`
	}
	members := []string{envelope}
	switch strings.ToLower(method) {
	case "resources/read":
		members = append(members, `"uri":`+c.uri())
	case "completion/complete":
		members = append(members, `"ref":{"type":"ref/prompt","name":`+c.name()+c.more([]string{"name", "uri", "type", "title"})+`}`,
			`"argument":{"name":"path","value":"v"`+c.more([]string{"name", "value"})+`}`)
	default:
		members = append(members, `"name":`+c.name(), `"arguments":`+c.arguments())
	}
	for range c.next(3) {
		members = append(members, c.quote(c.variant(pick(c, topNames)))+":"+c.topValue())
	}
	if c.next(2) == 1 && len(members) > 1 { // the order must not matter
		at := 1 + c.next(len(members)-1)
		members[1], members[at] = members[at], members[1]
	}
	return method, `{` + strings.Join(members, ",") + `}`
}

var topNames = []string{"name", "arguments", "uri", "ref", "argument", "_meta", "task", "inputResponses", "requestState",
	"context", "cursor", "admin"}

func (c *choices) name() string {
	return pick(c, []string{`"a__read"`, `"a__admin"`, `"b__read"`, `"b__\u0061dmin"`, `"read"`, `"a__READ"`, `null`})
}

func (c *choices) uri() string {
	return pick(c, []string{`"file:///read"`, `"file:\/\/\/admin"`, `"FILE:///read"`, `"file:///read\u0000"`})
}

func (c *choices) topValue() string {
	return pick(c, []func() string{c.name, c.arguments, c.uri, func() string { return c.value(0) }})()
}

func (c *choices) more(names []string) (members string) {
	for range c.next(3) {
		members += `,` + c.quote(c.variant(pick(c, names))) + `:` + c.name()
	}
	return members
}

var argumentNames = []string{"path", "options", "node", "env", "secret", "mode", "value", "next", "other"}

// arguments returns an object whose members have names of the schema, similar names, and other names.
func (c *choices) arguments() string {
	if c.next(16) == 15 {
		return pick(c, []string{`null`, `[]`, `"x"`, `{}`})
	}
	return c.object(0)
}

func (c *choices) object(depth int) string {
	var members []string
	for range c.next(5) {
		name := c.variant(pick(c, argumentNames))
		members = append(members, c.quote(name)+":"+c.valueOf(strings.ToLower(strings.TrimSpace(name)), depth+1))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// valueOf returns a value that a server accepts for a name, in most cases.
func (c *choices) valueOf(name string, depth int) string {
	switch {
	case depth > 4 || c.next(16) == 15:
		return c.value(depth)
	case name == "options":
		return "[" + c.object(depth) + "," + c.object(depth) + "]"
	case name == "node", name == "next", name == "env":
		return c.object(depth)
	}
	return pick(c, []string{`"x"`, `"y"`, `"\u0079"`, `"\ud83d\ude00"`, `""`})
}

func (c *choices) value(depth int) string {
	values := []string{`1`, `-0`, `1e400`, `9007199254740993`, `0.1`, `null`, `true`, `"s"`, `[]`, `{}`, `[1,[2]]`}
	if n := c.next(len(values) + 1); n < len(values) {
		return values[n]
	}
	if depth > 4 {
		return `0`
	}
	return c.object(depth + 1)
}

// variant returns a name, or a similar name that a careless reader takes for it.
func (c *choices) variant(name string) string {
	at := c.next(len(name))
	switch c.next(12) {
	case 0:
		return strings.ToUpper(name)
	case 1:
		return name[:at] + strings.ToUpper(name[at:at+1]) + name[at+1:]
	case 2:
		return strings.NewReplacer("s", "\u017f", "k", "\u212a").Replace(name)
	case 3:
		return name + pick(c, []string{" ", "\x00", "\t", "\u00a0", "\ufeff", "\x00x"})
	case 4:
		return pick(c, []string{" ", "\x00", "\n", "\u200b"}) + name
	case 5:
		return strings.ReplaceAll(name, "i", "\u0131")
	}
	return name
}

// quote returns a JSON string, in some cases with an escape.
func (c *choices) quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	if first := text[0]; c.next(4) == 3 && 'a' <= first && first <= 'z' {
		return fmt.Sprintf(`"\u%04x`, first) + string(quoted[2:])
	}
	return string(quoted)
}

// seeds are requests that a gateway once understood differently than servers did.
var seeds = [][2]string{
	{"tools/call", `"name":"a__read","Name":"admin","arguments":{"path":"a"},"Arguments":{"path":"b"}`},
	{"tools/call", `"name":"a__read","arguments":{"path":"a","Path":"b"}`},
	{"tools/call", `"name":"a__read","arguments":{"path":"a","Secret":"b"}`},
	{"tools/call", `"name":"a__admin","arguments":{"options":[{"mode":"a","MODE":"b"}],"node":{"next":{"Value":"x"}}}`},
	{"tools/call", `"name":"a__read","argument\u017f":{"path":"b"}`},
	{"prompts/get", `"name":"a__read","NAME":"admin","arguments":{"path":"a"}`},
	{"resources/read", `"uri":"file:///read","Uri":"file:///admin"`},
	{"completion/complete", `"ref":{"type":"ref/prompt","name":"a__read","Name":"admin"},"argument":{"name":"path","value":""}`},
}

// differentials returns a gateway to a server of each era.
func differentials(tb testing.TB) []*differential {
	return []*differential{newDifferential(tb, "2026-07-28"), newDifferential(tb, "2025-11-25")}
}

// FuzzPeersUnderstandWhatWasDecided compares the request that a policy has decided about with the request that
// mcp-go and the official Go SDK each read from the forwarded message: the tool, prompt or resource, and the
// arguments, including arguments that a handler reads without regard to the case of names.
func FuzzPeersUnderstandWhatWasDecided(f *testing.F) {
	for i := range 64 {
		f.Add([]byte{byte(i), byte(i * 7), byte(i * 13), byte(i * 29), byte(i * 31), byte(i * 37), byte(i * 41), byte(i * 43)})
	}
	all := differentials(f)
	for _, s := range seeds {
		for _, d := range all {
			if d.try(f, s[0], `{`+envelope+`,`+s[1]+`}`) {
				f.Errorf("%s %s was forwarded as %s", s[0], s[1], d.sent)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{data}
		d := all[0]
		if c.next(8) == 7 {
			d = all[1]
		}
		if method, params := c.request(); d.try(t, method, params) {
			d.compare(t, "mcp-go", d.byMCPGo())
			d.compare(t, "go-sdk", d.byGoSDK(t))
		}
	})
}

var requests = flag.Int("requests", 20_000, "how many requests TestPeersUnderstandRandomRequests sends")

// randomRequest returns a request that random bytes generate.
func randomRequest(random *rand.Rand) (method, params string) {
	data := make([]byte, 80)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	if data[2]%8 == 7 {
		data[2]-- // random bytes as params would be invalid
	}
	return (&choices{data}).request()
}

// The same as FuzzPeersUnderstandWhatWasDecided, with random requests. Peers must accept at least one in a
// hundred.
func TestPeersUnderstandRandomRequests(t *testing.T) {
	all, random := differentials(t), rand.New(rand.NewPCG(1, 2))
	var forwarded, compared int
	for i := range *requests {
		d := all[0]
		if i%8 == 7 {
			d = all[1]
		}
		if method, params := randomRequest(random); d.try(t, method, params) {
			forwarded++
			for peer, got := range map[string]*deed{"mcp-go": d.byMCPGo(), "go-sdk": d.byGoSDK(t)} {
				if d.compare(t, peer, got) {
					compared++
				}
			}
		}
	}
	t.Logf("%d requests, %d forwarded, %d understood by peers, no difference", *requests, forwarded, compared)
	if compared < *requests/100 {
		t.Errorf("the peers have understood %d requests of %d: too few to compare", compared, *requests)
	}
}

// The official TypeScript SDK understands what was decided about, too.
func TestTypeScriptUnderstandsWhatWasDecided(t *testing.T) {
	const nodeBinary = "../node_modules/node/bin/node"
	if _, err := os.Stat(nodeBinary); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the npm packages are not installed: %v", err)
		}
		t.Skip("the npm packages are not installed: run conformance/run")
	}
	cmd := exec.CommandContext(t.Context(), nodeBinary, "understand.mjs")
	cmd.Stderr = t.Output()
	in, out := must(cmd.StdinPipe()), bufio.NewReader(must(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	all, random := differentials(t), rand.New(rand.NewPCG(3, 4))
	var forwarded, compared int
	for i := range *requests {
		d := all[i%2]
		method, params := randomRequest(random)
		if !d.try(t, method, params) {
			continue
		}
		forwarded++
		if _, err := in.Write(append(d.message(), '\n')); err != nil {
			t.Fatal(err)
		}
		var got *struct {
			Method, Target string
			Arguments      json.RawMessage
		}
		if err := json.Unmarshal(must(out.ReadBytes('\n')), &got); err != nil {
			t.Fatal(err)
		}
		if got != nil && d.compare(t, "the TypeScript SDK", &deed{got.Method, got.Target, got.Arguments}) {
			compared++
		}
	}
	t.Logf("%d requests, %d forwarded, %d understood by the SDK, no difference", *requests, forwarded, compared)
	if compared < *requests/100 {
		t.Errorf("the SDK has understood %d requests of %d: too few to compare", compared, *requests)
	}
}
