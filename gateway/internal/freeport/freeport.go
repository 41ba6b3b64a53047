// Package freeport chooses addresses for tests of programs that must listen at a known one.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Addr returns an address of the loopback interface that nothing listens on. Its port is below those
// that systems choose for connections and for port 0, so that no other program gets it meanwhile.
func Addr(t testing.TB) string {
	t.Helper()
	const first, last = 10_000, 32_767
	var listen net.ListenConfig
	for range 1000 {
		l, err := listen.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first+1)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}
