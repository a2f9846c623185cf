"""Train, compare and use English–French translation models, from the fixed-context LSTM to the Transformer."""
