mod codec;
mod hostile;
mod network;
mod oracle;
mod random;
mod replica;
mod seeds;
mod simulation;
