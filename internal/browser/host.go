package browser

import (
	"fmt"
	"math"
	"strings"
	"unicode"
)

// HostWarning returns a warning for a host name with labels in Punycode, or "". Browsers may show
// the encoded characters instead, which can look like another name. Several scripts in one label
// make that likely.
//
// Spec: client/elicitation (2026-07-28), Safe URL Handling.
func HostWarning(host string) string {
	const prefix = "xn--"
	labels := strings.Split(strings.ToLower(host), ".")
	encoded, mixed := false, false
	for i, label := range labels {
		rest, ok := strings.CutPrefix(label, prefix)
		if !ok {
			continue
		}
		encoded = true
		if decoded, ok := decodePunycode(rest); ok {
			labels[i] = decoded
			mixed = mixed || len(scriptsOf(decoded)) > 1
		}
	}
	if !encoded {
		return ""
	}
	warning := fmt.Sprintf("the host name is encoded (xn--…) and may be shown like another name: as %+q",
		strings.Join(labels, "."))
	if mixed {
		warning += ", which mixes scripts"
	}
	return warning
}

// scriptsOf returns the scripts of the letters of a label.
func scriptsOf(label string) map[string]bool {
	scripts := map[string]bool{}
	for _, r := range label {
		for name, table := range unicode.Scripts {
			if name != "Common" && name != "Inherited" && unicode.Is(table, r) {
				scripts[name] = true
			}
		}
	}
	return scripts
}

// maxLabel is the length of a label of a host name. Spec: RFC 1035, section 2.3.4.
const maxLabel = 63

// Parameters of Punycode. Spec: RFC 3492, section 5.
const (
	punyBase, punyMin, punyMax = 36, 1, 26
	punySkew, punyDamp         = 38, 700
	punyBias, punyFirst        = 72, 128
)

// decodePunycode decodes a label without its prefix. Spec: RFC 3492, section 6.2.
func decodePunycode(label string) (string, bool) {
	if len(label) > maxLabel {
		return "", false
	}
	var decoded []rune
	rest := label
	if i := strings.LastIndexByte(label, '-'); i >= 0 {
		decoded, rest = []rune(label[:i]), label[i+1:]
	}
	n, i, bias := punyFirst, 0, punyBias
	for rest != "" {
		old, weight := i, 1
		for k := punyBase; ; k += punyBase {
			if rest == "" {
				return "", false
			}
			digit, ok := punyDigit(rest[0])
			rest = rest[1:]
			if !ok || digit > (math.MaxInt32-i)/weight {
				return "", false
			}
			i += digit * weight
			threshold := min(max(k-bias, punyMin), punyMax)
			if digit < threshold {
				break
			}
			if weight *= punyBase - threshold; weight > math.MaxInt32 {
				return "", false
			}
		}
		count := len(decoded) + 1
		bias = punyAdapt(i-old, count, old == 0)
		n += i / count
		i %= count
		if n > unicode.MaxRune {
			return "", false
		}
		decoded = append(decoded[:i], append([]rune{rune(n)}, decoded[i:]...)...)
		i++
	}
	return string(decoded), true
}

func punyDigit(c byte) (int, bool) {
	switch {
	case 'a' <= c && c <= 'z':
		return int(c - 'a'), true
	case '0' <= c && c <= '9':
		return int(c-'0') + 26, true
	}
	return 0, false
}

func punyAdapt(delta, count int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / count
	k := 0
	for ; delta > (punyBase-punyMin)*punyMax/2; k += punyBase {
		delta /= punyBase - punyMin
	}
	return k + (punyBase-punyMin+1)*delta/(delta+punySkew)
}
