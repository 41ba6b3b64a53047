// Command limit is the baseline of a cold start: a bare Go program that reads
// one line and writes a prepared response.
package main

import (
	"bufio"
	"bytes"
	"os"
)

const (
	info        = `{"name":"limit","version":"1.0.0"}`
	initialized = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
		`"serverInfo":` + info + `}}` + "\n"
	discovered = `{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public",` +
		`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}}}` + "\n"
)

func main() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		answer := discovered
		if bytes.Contains(line, []byte(`"initialize"`)) {
			answer = initialized
		}
		os.Stdout.WriteString(answer)
	}
}
