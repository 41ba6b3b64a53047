package catalogue

// Alike returns groups of visible tools and prompts of different servers whose names look alike.
func (c *Catalogue) Alike() [][]*Item { return nil }
