# frozen_string_literal: true

# A search while the user types: the answer that comes last is shown, and may be that of the first letters.
Bugs.define("old answer") do |world, mended|
  shown, newest = nil, 0
  world.link(latency: 0.001..0.2, drop: 0.02)
  Bugs.serve(world, "search") { |text| "results of #{text}" }
  world.client("browser") do
    typed = %w[r re rea].each_with_index.map do |text, number|
      sleep 0.1
      Fiber.schedule do
        answer = Bugs.ask("search", text)
        next if mended && number < newest

        newest = number
        shown = answer
      end
    end
    sleep 0.1 while typed.any?(&:alive?)
  end
  world.check { raise "shows #{shown}" unless shown == "results of rea" }
end
