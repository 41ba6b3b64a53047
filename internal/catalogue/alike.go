package catalogue

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Alike returns groups of visible tools and prompts of different servers whose names look alike to a
// user or a model, although they differ: "create_issue" and "createIssue", or a name with a letter
// of another alphabet. Tools that simply have the same name, such as "search", are not a group.
func (c *Catalogue) Alike() [][]*Item { return c.alike() }

func (c *Catalogue) newAlike() (groups [][]*Item) {
	for _, k := range []Kind{Tools, Prompts} {
		for _, name := range []func(*Item) string{
			func(i *Item) string { return i.Original },
			func(i *Item) string { return i.Public },
		} {
			for _, group := range alikeBy(c.kinds[k].items, name) {
				if !slices.ContainsFunc(groups, func(g []*Item) bool { return slices.Equal(g, group) }) {
					groups = append(groups, group)
				}
			}
		}
	}
	return groups
}

// alikeBy returns the groups whose names by one measure look alike and differ.
func alikeBy(items []*Item, name func(*Item) string) (groups [][]*Item) {
	type group struct {
		items           []*Item
		servers, differ bool // more than one server; different names
	}
	found := make(map[string]*group, len(items))
	var order []*group
	for _, item := range items {
		key := skeleton(name(item))
		g := found[key]
		if g == nil {
			g = &group{}
			found[key] = g
			order = append(order, g)
		} else {
			g.servers = g.servers || g.items[0].Server != item.Server
			g.differ = g.differ || name(g.items[0]) != name(item)
		}
		g.items = append(g.items, item)
	}
	for _, g := range order {
		if g.servers && g.differ {
			groups = append(groups, g.items)
		}
	}
	return groups
}

// skeleton returns a text that is equal for names that look alike: letters and digits only, without
// case, marks and alphabet.
func skeleton(name string) string {
	table := foldings()
	var b strings.Builder
	for _, r := range name {
		switch {
		case '0' <= r && r <= '9' || 'a' <= r && r <= 'z':
		case 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
		case 0xFF01 <= r && r <= 0xFF5E: // full-width forms
			r = unicode.ToLower(r - 0xFF01 + '!')
		case 0x1D400 <= r && r <= 0x1D6A3: // mathematical letters: 13 alphabets
			r = 'a' + (r-0x1D400)%52%26
		case 0x1D7CE <= r && r <= 0x1D7FF: // mathematical digits
			r = '0' + (r-0x1D7CE)%10
		case table[r] != 0:
			r = table[r]
		default:
			r = unicode.ToLower(r)
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(r)
		}
	}
	return sameGlyphs.Replace(b.String())
}

// sameGlyphs joins the ASCII letters and digits that many fonts show alike.
var sameGlyphs = strings.NewReplacer("0", "o", "1", "l", "i", "l", "rn", "m", "vv", "w")

// foldings maps the characters of lookalikes to what they look like.
var foldings = sync.OnceValue(func() map[rune]rune {
	table := map[rune]rune{}
	for c, same := range lookalikes {
		for _, r := range same {
			table[r] = rune(c)
		}
	}
	return table
})
