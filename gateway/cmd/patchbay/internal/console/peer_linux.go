package console

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// otherUser returns another user of this machine, other than root, who owns the client side of a TCP
// connection. Each user can read the arguments of the command that opens the browser, and so the token:
// the console must refuse a token from another user, and must not use it up.
func otherUser(client, server string) (uid int, ok bool) {
	from, err := netip.ParseAddrPort(client)
	to, err2 := netip.ParseAddrPort(server)
	if err != nil || err2 != nil {
		return 0, false
	}
	ends := [2]string{fmt.Sprintf(":%04X", from.Port()), fmt.Sprintf(":%04X", to.Port())}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if uid, ok := ownerIn(table, ends); ok {
			return uid, true
		}
	}
	return 0, false
}

// ownerIn returns the other user who owns a socket with these ports in a table of the kernel. The ports must
// be written as in the table.
func ownerIn(table string, ports [2]string) (uid int, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false // a kernel without IPv6
	}
	defer f.Close()
	const local, remote, owner = 1, 2, 7 // columns
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= owner || !strings.HasSuffix(fields[local], ports[0]) ||
			!strings.HasSuffix(fields[remote], ports[1]) {
			continue
		}
		if uid, err := strconv.Atoi(fields[owner]); err == nil && uid != 0 && uid != os.Geteuid() {
			return uid, true
		}
	}
	return 0, false
}
