# frozen_string_literal: true

# The rows whose gem blocks in C, with the adapter of this library: no call is in Reactor.offload.
%w[mysql2 typhoeus curb grpc].each do |gem|
  blocking = Gems::ROWS.find { |row| row.gem == gem && row.verdict == :blocks }
  Gems.row "#{gem} with its adapter", **blocking.to_h.slice(:server, :what, :open, :call, :close),
    requires: ["reactor/adapters/#{gem}"], setting: "require \"reactor/adapters/#{gem}\""
end
