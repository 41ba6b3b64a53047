package cli

import (
	"fmt"
	"slices"
	"strings"
)

// checkModuleName returns an error for module paths with which Go cannot build or test a program.
// Names in upper case are refused too: file systems of Windows and macOS do not distinguish them.
func checkModuleName(name string) error {
	lower := strings.ToLower(name)
	switch {
	case slices.Contains(strings.Fields(standardPackages), lower):
		return refusedName(name, "it is the name of a package of Go's standard library")
	case lower == "main":
		return refusedName(name, `Go cannot test a package whose path is "main"`)
	case slices.Contains(reservedPaths, lower):
		return refusedName(name, "it has a meaning of its own for the go command")
	}
	for element := range strings.SplitSeq(lower, "/") {
		if strings.HasSuffix(element, ".") {
			return refusedName(name, fmt.Sprintf("%q ends with a dot, which Go refuses in module paths", element))
		}
		device, _, _ := strings.Cut(element, ".") // con.example is con too
		if slices.Contains(windowsDevices, device) {
			return refusedName(name, fmt.Sprintf("%q is the name of a device on Windows, "+
				"where it cannot be a directory", device))
		}
	}
	return nil
}

func refusedName(name, why string) error {
	return fmt.Errorf("invalid name %q: %s; choose another name, such as my-server or github.com/me/my-server",
		name, why)
}

// reservedPaths are sets of packages for the go command, and the package of cgo.
// Source: go help packages; go help importpath.
var reservedPaths = []string{"all", "c", "cmd", "std", "tool", "work"}

// windowsDevices cannot be names of files, with any extension; Go refuses them in module paths.
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file; golang.org/x/mod/module.
var windowsDevices = strings.Fields("con prn aux nul com1 com2 com3 com4 com5 com6 com7 com8 com9 " +
	"lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9")

// standardPackages are the packages of the standard library that programs can import, also those of
// experiments. Source: go list std.
const standardPackages = `
archive/tar archive/zip bufio builtin bytes cmp compress/bzip2 compress/flate compress/gzip
compress/lzw compress/zlib container/heap container/list container/ring context crypto
crypto/aes crypto/cipher crypto/des crypto/dsa crypto/ecdh crypto/ecdsa crypto/ed25519
crypto/elliptic crypto/fips140 crypto/hkdf crypto/hmac crypto/hpke crypto/md5 crypto/mlkem
crypto/mlkem/mlkemtest crypto/pbkdf2 crypto/rand crypto/rc4 crypto/rsa crypto/sha1
crypto/sha256 crypto/sha3 crypto/sha512 crypto/subtle crypto/tls crypto/x509 crypto/x509/pkix
database/sql database/sql/driver debug/buildinfo debug/dwarf debug/elf debug/gosym debug/macho
debug/pe debug/plan9obj embed encoding encoding/ascii85 encoding/asn1 encoding/base32
encoding/base64 encoding/binary encoding/csv encoding/gob encoding/hex encoding/json
encoding/json/jsontext encoding/json/v2 encoding/pem encoding/xml errors expvar flag fmt go/ast
go/build go/build/constraint go/constant go/doc go/doc/comment go/format go/importer go/parser
go/printer go/scanner go/token go/types go/version hash hash/adler32 hash/crc32 hash/crc64
hash/fnv hash/maphash html html/template image image/color image/color/palette image/draw
image/gif image/jpeg image/png index/suffixarray io io/fs io/ioutil iter log log/slog
log/syslog maps math math/big math/bits math/cmplx math/rand math/rand/v2 mime mime/multipart
mime/quotedprintable net net/http net/http/cgi net/http/cookiejar net/http/fcgi
net/http/httptest net/http/httptrace net/http/httputil net/http/pprof net/mail net/netip
net/rpc net/rpc/jsonrpc net/smtp net/textproto net/url os os/exec os/signal os/user path
path/filepath plugin reflect regexp regexp/syntax runtime runtime/cgo runtime/coverage
runtime/debug runtime/metrics runtime/pprof runtime/race runtime/trace slices sort strconv
strings structs sync sync/atomic syscall testing testing/cryptotest testing/fstest
testing/iotest testing/quick testing/slogtest testing/synctest text/scanner text/tabwriter
text/template text/template/parse time time/tzdata unicode unicode/utf16 unicode/utf8 unique
unsafe weak
`
