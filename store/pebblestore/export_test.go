package pebblestore

// InPieces makes rewrites take rows of more than n bytes in pieces.
func (o *Options) InPieces(n int) { o.maxRewrittenRow = n }

// InBlocks makes tables of blocks of about n bytes.
func (o *Options) InBlocks(n int) { o.blockBytes = n }
